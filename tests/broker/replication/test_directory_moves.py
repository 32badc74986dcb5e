"""Replicas that move from one log directory of their broker to another."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.wire.batch import batches, decode
from tests.support.batches import make_batch
from tests.support.replica_cluster import (
    DIRECTORY,
    OTHER_DIRECTORY,
    P0,
    TOPIC,
    Node,
    ReplicaCluster,
)
from tests.support.replication import settled
from tests.support.timing import until

KEY = TopicPartition(TOPIC, 0)
DIRECTORIES = (DIRECTORY, OTHER_DIRECTORY)
Scenario = Callable[[ReplicaCluster], Awaitable[None]]


def with_topic(
    scenario: Scenario,
    *,
    brokers: int = 1,
    seed: int = 1,
    directories: tuple[str, ...] = DIRECTORIES,
    settings: dict[str, object] | None = None,
    **configs: str,
) -> None:
    """One partition on all brokers, which have two log directories or more."""

    async def whole(cluster: ReplicaCluster) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        replicas = tuple(range(1, brokers + 1))
        cluster.create_topic(replicas, configs=named, min_insync=min(brokers, 2))
        await settled(cluster)
        await scenario(cluster)

    cluster = ReplicaCluster(
        brokers=brokers, seed=seed, directories=directories, **(settings or {})
    )
    cluster.run(whole)


async def move(node: Node, path: str, key: TopicPartition = KEY) -> ErrorCode:
    async def ask() -> ErrorCode:
        return node.manager.alter_directory(key, path)

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


async def values(node: Node, *, until_offset: int | None = None) -> list[bytes]:
    """Of all committed records."""
    found: list[bytes] = []
    offset = node.replica().log.start_offset
    while offset < node.replica().machine.high_watermark:
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

    async def write_on(self) -> None:
        while True:
            await self.write()

    def check(self, found: list[bytes]) -> None:
        """All acknowledged records are there, each once and in order."""
        assert len(set(found)) == len(found)
        acknowledged = set(self.acknowledged)
        assert [each for each in found if each in acknowledged] == self.acknowledged


def test_a_replica_moves_while_it_is_written() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        node = cluster[1]
        writer = Writer(node)
        await writer.write(50, size=20_000)
        assert place(node) == DIRECTORY
        writing = asyncio.ensure_future(writer.write_on())
        assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
        await moved(node, OTHER_DIRECTORY)
        before = len(writer.acknowledged)
        assert before > 50
        await until(lambda: len(writer.acknowledged) > before + 20)
        writing.cancel()
        assert holders(node) == [OTHER_DIRECTORY]
        assert on_disk(node) == [f"{OTHER_DIRECTORY}/{KEY}"]
        writer.check(await values(node))
        await node.stop()
        await node.start()
        cluster.register(node)
        await until(lambda: node.holds() and node.replica().machine.is_leader)
        assert place(node) == OTHER_DIRECTORY
        writer.check(await values(node))
        assert await move(node, DIRECTORY) is ErrorCode.NONE
        await moved(node, DIRECTORY)
        await writer.write(3)
        writer.check(await values(node))

    with_topic(scenario)


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


@pytest.mark.parametrize("power", [True, False], ids=["power", "process"])
def test_a_crash_at_any_time_leaves_one_log_with_all_that_was_acknowledged(power: bool) -> None:
    """The move takes some 40 ms here. Each crash comes a little later than the last one."""
    places: list[str] = []

    def crash_after(delay_s: float, seed: int) -> bool:
        over = False

        async def scenario(cluster: ReplicaCluster) -> None:
            nonlocal over
            node = cluster[1]
            writer = Writer(node)
            await writer.write(10, size=300)
            await node.delete(4)
            writing = asyncio.ensure_future(writer.write_on())
            start_offset = 4
            assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
            await asyncio.sleep(delay_s)
            over = is_settled(node)
            writing.cancel()
            await crash(cluster, node, power=power)
            places.append(place(node))
            assert holders(node) == [place(node)]
            assert node.starts()[0] == start_offset
            found = await values(node)
            del writer.acknowledged[:start_offset]
            writer.check(found)
            if is_settled(node):  # the crash came before anything of the copy was on disk
                assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
            await moved(node, OTHER_DIRECTORY)
            assert on_disk(node) == [f"{OTHER_DIRECTORY}/{KEY}"]
            assert await values(node) == found
            assert node.replica().log.start_offset == start_offset
            await writer.write(2)
            await crash(cluster, node, power=power)
            assert (place(node), holders(node)) == (OTHER_DIRECTORY, [OTHER_DIRECTORY])
            writer.check(await values(node))

        with_topic(scenario, seed=seed, segment_bytes="1024", retention_ms="-1")
        return over

    delay_s, seed = 0.0, 0
    while not crash_after(delay_s, seed):
        delay_s += 0.000_5
        seed += 1
    assert {*places} == {*DIRECTORIES}
    assert seed > 20
