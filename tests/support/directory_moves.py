"""Brokers with several log directories, between which replicas move."""

from __future__ import annotations

import asyncio
import itertools

from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.wire.batch import batches, decode
from tests.support import replication
from tests.support.batches import make_batch
from tests.support.replica_cluster import (
    DIRECTORY,
    OTHER_DIRECTORY,
    P0,
    TOPIC,
    Node,
    ReplicaCluster,
)
from tests.support.timing import until

KEY = TopicPartition(TOPIC, 0)
DIRECTORIES = (DIRECTORY, OTHER_DIRECTORY)


with_topic = replication.with_topic.having(brokers=1, directories=DIRECTORIES)
"""Brokers have two log directories or more."""


async def move(node: Node, path: str, key: TopicPartition = KEY) -> ErrorCode:
    async def ask() -> ErrorCode:
        return node.manager.moves.alter(key, path)

    return await node.process.run(ask())


def place(node: Node) -> str:
    return node.replica().directory.path


def is_settled(node: Node) -> bool:
    moves = node.manager.moves
    return node.holds() and not moves.is_moving(P0)


async def moved(node: Node, path: str) -> None:
    await until(lambda: is_settled(node) and place(node) == path)


def holders(node: Node) -> list[str]:
    """The directories with a log of the partition."""
    return [each.path for each in node.directories if KEY in each.logs or KEY in each.corrupt]


def on_disk(node: Node) -> list[str]:
    """The paths of logs and copies of the partition."""
    return [f"{path}/{KEY}" for path in DIRECTORIES if str(KEY) in node.disk.names(path)]


async def values(node: Node) -> list[bytes]:
    """Of all records of a leader, once they are committed."""
    machine = node.replica().machine
    await until(lambda: machine.high_watermark == node.replica().log.end_offset)
    found: list[bytes] = []
    offset = node.replica().log.start_offset
    while offset < machine.high_watermark:
        result = await node.fetch(offset)
        assert result.error is ErrorCode.NONE
        for data in result.records:
            for position, _ in batches(data):
                for record in decode(data, position):
                    found.append(record.value or b"")
                    offset = record.offset + 1
    return found


class Writer:
    """Writes numbered records with acks=all, and knows which were acknowledged."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.numbers = itertools.count()
        self.acknowledged: list[bytes] = []

    async def write(self, count: int = 1, *, size: int = 100) -> None:
        for _ in range(count):
            value = b"%06d" % next(self.numbers)
            value += b"." * (size - len(value))
            result = await self.node.produce(make_batch(value=value))
            if result.error is ErrorCode.NONE:
                self.acknowledged.append(value)
            else:
                await asyncio.sleep(0.001)  # it may have been refused at once

    async def write_on(self) -> None:
        while True:
            await self.write()

    def check(self, found: list[bytes]) -> None:
        """All acknowledged records are there, each once and in order."""
        assert len(set(found)) == len(found)
        acknowledged = set(self.acknowledged)
        assert [each for each in found if each in acknowledged] == self.acknowledged


async def crash(cluster: ReplicaCluster, node: Node, *, power: bool) -> None:
    """End the node's process, with its machine or not, and start it again."""
    if power:
        cluster.simulation.power_off(node.name)
        cluster.simulation.power_on(node.name)
    else:
        node.kill()
    cluster.fence(node.broker_id)
    await node.start()
    cluster.register(node)
    await until(lambda: node.holds() and node.replica().machine.is_leader)


THIRD_DIRECTORY = "/third"
SLOW: dict[str, object] = {"replica.alter.log.dirs.io.max.bytes.per.second": 1}
"""A copy of more than a slice waits for days after the first one."""


def hurry(node: Node) -> None:
    node.process.loop.call_soon(node.manager.moves.set_rate, 1 << 40)


def futures(node: Node) -> list[tuple[str, int, int]]:
    """The directory, the size in bytes and the lag of each copy."""
    return [
        (each.directory.path, each.size_bytes, each.offset_lag)
        for each in node.manager.moves.future_replicas()
    ]


async def begun(node: Node, path: str) -> None:
    """Wait until the first slice is copied."""
    await until(lambda: [size > 0 for where, size, _ in futures(node) if where == path] == [True])
