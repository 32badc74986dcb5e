"""A full disk: the node refuses what it cannot write, stays alive, and goes on when there is room.

The disk is a small file system, which needs root.
"""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from io import FileIO
from pathlib import Path

import pytest

from chaos.process_cluster import ProcessCluster
from stele.errors import ApiError, ErrorCode
from tests.support.acceptance import NodeLog, a_batch, attempt, client_of

pytestmark = pytest.mark.processes

MIB = 1024 * 1024


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    disk, image = tmp_path / "disk", tmp_path / "disk.image"
    disk.mkdir()
    commands = {
        "tmpfs": [["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(disk)]],
        "ext4": [
            ["truncate", "-s", "32M", str(image)],
            ["mkfs.ext4", "-q", str(image)],
            ["mount", "-o", "loop", str(image), str(disk)],
        ],
    }
    for command in commands[request.param]:
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed")
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
async def node(tmp_path: Path, small_disk: Path) -> AsyncIterator[ProcessCluster]:
    """A broker and controller in one: its records and the metadata log are both on that disk."""
    cluster = ProcessCluster(
        tmp_path / "node", brokers=1, combined=True, settings={"log.dirs": str(small_disk / "data")}
    )
    await cluster.start()
    yield cluster
    await cluster.stop()


def fill(disk: Path) -> Path:
    """Fill the disk with another file."""
    file = disk / "somebody-elses"
    with file.open("wb", buffering=0) as out:
        for size in (MIB, 4096, 1):
            while _takes(out, size):
                pass
    return file


def _takes(out: FileIO, size: int) -> bool:
    try:
        return out.write(bytes(size)) == size
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


async def test_a_full_disk_refuses_and_recovers(node: ProcessCluster, small_disk: Path) -> None:
    (broker,) = node.broker_ids
    pid = node.nodes[broker].pid
    async with client_of(node) as client:
        await client.create_topic("t", replication_factor=1)
        for number in range(50):
            await client.produce_until_acknowledged("t", b"%d" % number + bytes(1000))
        log = NodeLog(node, broker)
        filler = fill(small_disk)

        for acks in (-1, 1):
            (answer,) = await attempt(
                client, broker, "t", bytes(a_batch(b"refused" + bytes(9000))), acks=acks
            )
            assert ErrorCode(answer.error_code) is ErrorCode.KAFKA_STORAGE_ERROR
            assert "No space left" in (answer.error_message or "")
            assert "free space" in (answer.error_message or "")
        await log.line("ERROR", "t-0: a batch is refused: KAFKA_STORAGE_ERROR", "free space")
        with pytest.raises(ApiError) as caught:
            await client.create_topic("no-room-for-this", replication_factor=1)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await log.line("ERROR", "CreateTopicsRequest is refused", "free space")
        assert len(await client.fetch_all("t")) == 50, "reading goes on"
        assert node.nodes[broker].pid == pid
        assert node.nodes[broker].running

        filler.unlink()
        for number in range(50, 100):
            await client.produce_until_acknowledged("t", b"%d" % number + bytes(1000))
        await client.create_topic("room-again", replication_factor=1)
        await client.produce_until_acknowledged("room-again", b"first")
        assert not any(b"refused" in value for _, value in await client.check_promises("t"))
        await client.check_promises("room-again")
        assert "Traceback" not in log.text()

        node.kill(broker)
        await node.restart(broker)
        assert len(await client.check_promises("t")) == 100


async def test_a_node_killed_on_a_full_disk_starts_again_when_there_is_room(
    node: ProcessCluster, small_disk: Path
) -> None:
    """Its vote in a new epoch needs room. Until there is room it waits, and says for what."""
    (broker,) = node.broker_ids
    async with client_of(node) as client:
        await client.create_topic("t", replication_factor=1)
        for number in range(50):
            await client.produce_until_acknowledged("t", b"%d" % number + bytes(1000))
        filler = fill(small_disk)
        await attempt(client, broker, "t", bytes(a_batch(b"refused" + bytes(9000))))
        node.kill(broker)
        log = NodeLog(node, broker)
        node.nodes[broker].spawn()
        line = await log.line("ERROR", "neither votes nor leads until there is room")
        assert str(small_disk) in line
        assert "free space" in line
        filler.unlink()
        await node.wait_serving([broker], timeout_s=30)
        assert len(await client.check_promises("t")) == 50
        await client.produce("t", b"and on it goes", broker=broker)
        assert "Traceback" not in log.text()
