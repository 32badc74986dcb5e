"""A controller whose quorum files cannot be used does not start, while the quorum goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.process_cluster import NodeProcess
from runtime.quorum.snapshots import encode, parse_name
from tests.support.quorum_processes import QuorumProcesses

pytestmark = pytest.mark.processes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QuorumProcesses]:
    processes = QuorumProcesses(tmp_path)
    try:
        yield processes
    finally:
        processes.end()


def files(node: NodeProcess) -> Path:
    return node.directory / "data" / "__cluster_metadata-0"


def newest_snapshot(node: NodeProcess) -> Path | None:
    return max(files(node).glob("*.checkpoint"), default=None)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def of_another_cluster(path: Path) -> None:
    snapshot = parse_name(path.name)
    assert snapshot is not None
    path.write_bytes(b"".join(encode(snapshot, "another-cluster", 0, [])))


def state_of_another_cluster(path: Path) -> None:
    fields = json.loads(path.read_bytes())
    path.write_text(json.dumps(fields | {"clusterId": "another-cluster"}))


async def test_files_that_cannot_be_used(cluster: QuorumProcesses) -> None:
    first = cluster.controller(1)
    await cluster.start(first, "--standalone")
    await cluster.start(cluster.broker(101))
    await cluster.until_serving(1)
    node = cluster.controller(2)
    node.settings["metadata.log.max.record.bytes.between.snapshots"] = "1"
    node.write_config()
    await cluster.start(node, "--no-initial-controllers")
    await cluster.add_voter(node)
    await cluster.until(lambda: newest_snapshot(node) is not None, "controller 2 has a snapshot")
    await cluster.remove_voter(2)  # the quorum goes on without it
    assert await cluster.stop(node) == 0
    before = (await cluster.describe()).epoch

    snapshot = newest_snapshot(node)
    assert snapshot is not None
    state = files(node) / "quorum-state"
    wrong: list[tuple[Path, Callable[[Path], None], str]] = [
        (snapshot, flip, "damaged"),
        (snapshot, of_another_cluster, f"not of cluster {cluster.cluster_id}"),
        (state, state_of_another_cluster, "is of cluster another-cluster"),
        (state, Path.unlink, "no longer knows how it voted"),
    ]
    for path, spoil, words in wrong:
        kept = path.read_bytes()
        spoil(path)
        spoilt = {each.name: each.read_bytes() for each in files(node).iterdir()}
        node.log_file.write_bytes(b"")
        node.spawn()
        await cluster.until(lambda: not node.running, "it refuses to start")
        assert node.process is not None
        assert node.process.returncode == 1
        (said,) = [e for e in node.log_file.read_text().splitlines() if e.startswith("stele: ")]
        assert words in said
        assert str(path) in said or str(files(node)) in said
        assert {each.name: each.read_bytes() for each in files(node).iterdir()} == spoilt
        path.write_bytes(kept)
        assert await cluster.voters() == [1]

    node.spawn()
    await cluster.until_observed(2)
    await cluster.add_voter(node)
    assert (await cluster.describe()).epoch == before
