"""Every released version's files are opened by this one (tests/releases)."""

from __future__ import annotations

from pathlib import Path

import pytest

from stele import TopicPartition
from stele.aio import Admin, Producer
from tests.support.release_data import (
    ARCHIVES,
    GROUP,
    OPEN_TRANSACTION,
    cluster_in,
    describe,
    running,
    unpack,
)

pytestmark = pytest.mark.processes

RELEASES = sorted(ARCHIVES.glob("*.tar.xz"))


@pytest.mark.parametrize("archive", RELEASES, ids=lambda path: path.name.removesuffix(".tar.xz"))
async def test_what_a_release_has_stored_is_told_and_goes_on(archive: Path, tmp_path: Path) -> None:
    told = unpack(archive, tmp_path)
    async with running(cluster_in(tmp_path)) as server:
        assert await describe(server) == told
        await _go_on(server)


async def _go_on(server: str) -> None:
    """Records, offsets and transactions continue where the release has stopped."""
    places = [TopicPartition("lz4", 0), TopicPartition("transactional", 1)]
    async with Admin(server) as admin:
        before = await admin.list_offsets(dict.fromkeys(places, -1))
        async with Producer(server, transactional_id=OPEN_TRANSACTION) as producer:
            await producer.init_transactions()  # ends the one that was left open
            async with producer.transaction():
                stored = [
                    await (await producer.send(each.topic, b"later", partition=each.partition))
                    for each in places
                ]
        assert stored[0].offset == before[places[0]].offset
        assert stored[1].offset == before[places[1]].offset + 1  # behind the marker
        states = {each.transactional_id: each.state for each in await admin.list_transactions()}
        assert states[OPEN_TRANSACTION] in ("PrepareCommit", "CompleteCommit")
        assert (await admin.list_group_offsets(GROUP))[places[0]].offset == 7
        await admin.delete_groups([GROUP])
