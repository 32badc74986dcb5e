"""Ordinary streams, whose records share lanes, while leaders, controllers and brokers fail."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from chaos.sim.cluster.cluster import GRPC_PORT, SimCluster
from chaos.sim.laws.judged import JudgedCluster
from stele.addresses import Address
from stele.wire.v1 import log_pb2 as pb
from stele.world import RpcError
from tests.support.thin_client import Publishing, record
from tests.support.thin_trouble import PARTITIONS, TOPIC, create_topic, read_all, trouble

WRITERS = 3


class Writer:
    """Sends every value once, over whichever broker. What has no result is not sent again."""

    def __init__(self, cluster: SimCluster, name: int, rng: random.Random) -> None:
        self._cluster = cluster
        self._name = name
        self._rng = rng
        self._count = 0
        self.sent: list[bytes] = []
        self.stored: dict[bytes, tuple[int, int]] = {}  # partition and offset
        self.surely_not: set[bytes] = set()

    async def run(self) -> None:
        """Until it is cancelled."""
        hosts = [broker.host for broker in self._cluster.brokers.values()]
        while True:
            host = self._rng.choice(hosts)
            channel = self._cluster.client_world.network.channel(Address(host, GRPC_PORT))
            try:
                async with asyncio.timeout(self._rng.uniform(1, 40)):
                    await self._stream(Publishing(channel))
            except (RpcError, TimeoutError):
                await asyncio.sleep(self._rng.uniform(0, 0.3))
            finally:
                await channel.close()

    async def _stream(self, publishing: Publishing) -> None:
        values: list[bytes] = []
        told = 0
        while True:
            for _ in range(self._rng.randint(1, 5)):
                records = [self._next() for _ in range(self._rng.randint(1, 20))]
                values += [each.value for each in records]
                await publishing.send(*records, topic=TOPIC)
            while told < len(values) - 50 or self._rng.random() < 0.5:
                if told == len(values):
                    break
                await publishing.receive_more()
                while told in publishing.results:
                    self._told(values[told], publishing.results[told])
                    told += 1
            await asyncio.sleep(self._rng.uniform(0, 0.1))

    def _next(self) -> pb.PublishRecord:
        value = b"%d-%d" % (self._name, self._count)
        self._count += 1
        self.sent.append(value)
        choice = self._rng.randrange(3)
        partition = self._rng.randrange(PARTITIONS) if choice == 0 else None
        return record(value, b"k" if choice == 1 else None, partition=partition)

    def _told(self, value: bytes, result: pb.PublishResult) -> None:
        assert not result.is_duplicate
        if not result.HasField("error"):
            self.stored[value] = result.partition, result.offset
        elif not result.error.maybe_written:
            self.surely_not.add(value)


async def share_through_trouble(cluster: SimCluster) -> None:
    rng = random.Random(cluster.simulation.seed)
    await create_topic(cluster)
    writers = [Writer(cluster, name, random.Random(rng.random())) for name in range(WRITERS)]
    tasks = [asyncio.get_running_loop().create_task(each.run()) for each in writers]
    await trouble(cluster, rng)
    await asyncio.sleep(2)
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome
    await asyncio.sleep(60)  # what is still in lanes has its outcome by then
    records = await read_all(cluster)
    where = {(each.partition, each.offset): each.value for each in records}
    assert max(Counter(where.values()).values()) == 1
    for writer in writers:
        assert len(writer.stored) > 50
        for value, place in writer.stored.items():
            assert where[place] == value
        assert not writer.surely_not & {each for each in where.values() if each is not None}
        order = {value: number for number, value in enumerate(writer.sent)}
        for partition in range(PARTITIONS):
            stored = [(o, order[v]) for v, (p, o) in writer.stored.items() if p == partition]
            assert stored == sorted(stored)
            assert [number for _, number in sorted(stored)] == sorted(n for _, n in stored)


@pytest.mark.parametrize("seed", range(31, 35))
def test_no_record_is_lost_or_doubled(seed: int) -> None:
    JudgedCluster(seed).run(share_through_trouble)


async def publish_while_the_leader_hangs(cluster: SimCluster) -> None:
    """The leader's connections stay open, and it answers nothing."""
    await create_topic(cluster)
    leader = cluster.leader(TOPIC, 0)
    other = next(each for each in cluster.brokers.values() if each is not leader)
    channel = cluster.client_world.network.channel(Address(other.host, GRPC_PORT))
    publishing = Publishing(channel)
    await publishing.send(record(b"before", partition=0), topic=TOPIC)
    await publishing.receive(1)
    leader.pause()
    await publishing.send(record(b"while", partition=0), topic=TOPIC)
    clock = cluster.client_world.clock
    began = clock.monotonic()
    (_, result) = await publishing.receive(2)
    assert not result.HasField("error")
    # The session of 3 s, the election, and the lane's pause: not the time-out of the request.
    assert clock.monotonic() - began < 6
    leader.resume()
    await cluster.until_isr(TOPIC, 3)
    values = [each.value for each in await read_all(cluster) if each.partition == 0]
    assert values == [b"before", b"while"]


def test_a_leader_that_hangs_is_left_when_it_is_replaced() -> None:
    JudgedCluster(41).run(publish_while_the_leader_hangs)
