"""Thin clients, while leaders, controllers and the brokers that they talk to fail.

A client knows one broker at a time. When its stream breaks, it takes another broker and sends all
that has no result again. Whatever fails, each of its records must be in the log once, in order.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from chaos.sim.cluster.cluster import GRPC_PORT, SimCluster
from chaos.sim.laws.judged import JudgedCluster
from stele.addresses import Address
from stele.wire.v1 import log_pb2 as pb
from stele.world import RpcError
from tests.support.thin_client import Publishing, Subscribing, record
from tests.support.thin_trouble import PARTITIONS, TOPIC, create_topic, read_all, trouble

RECORDS = 200  # of each partition
SILENCE_S = 5.0


class ThinPublisher:
    """Numbers its records in each partition, and keeps the ones without a result."""

    def __init__(self, cluster: SimCluster, rng: random.Random) -> None:
        self._hosts = [broker.host for broker in cluster.brokers.values()]
        self._network = cluster.client_world.network
        self._rng = rng
        self.unanswered: list[pb.PublishRecord] = []
        self.offsets: dict[tuple[int, int], int | None] = {}  # by partition and sequence
        self.streams = 0
        self.duplicates = 0

    async def create(self) -> None:
        channel = self._network.channel(Address(self._hosts[0], GRPC_PORT))
        answer = await channel.call("/stele.v1.Log/CreatePublisher", b"", timeout_s=30)
        self._id = pb.CreatePublisherResponse.FromString(answer).publisher_id
        await channel.close()

    def add(self, sequence: int) -> None:
        for partition in range(PARTITIONS):
            value = b"%d" % sequence
            self.unanswered.append(record(value, partition=partition, sequence=sequence))

    async def run_until_answered(self) -> None:
        while self.unanswered:
            self.streams += 1
            channel = self._network.channel(Address(self._rng.choice(self._hosts), GRPC_PORT))
            try:
                await self._stream(Publishing(channel), list(self.unanswered))
            except (RpcError, TimeoutError):
                await asyncio.sleep(self._rng.uniform(0, 0.3))
            finally:
                await channel.close()

    async def _stream(self, publishing: Publishing, sent: list[pb.PublishRecord]) -> None:
        """Send everything over one stream. A record that is refused ends it, as a break does."""
        options = pb.PublishOptions(publisher_id=self._id)
        size = self._rng.randint(1, 50)
        for start in range(0, len(sent), size):
            part = sent[start : start + size]
            await publishing.send(*part, topic=TOPIC, **({} if start else {"options": options}))
        done: set[int] = set()
        while len(done) < len(sent):
            async with asyncio.timeout(SILENCE_S):
                await publishing.receive_more()
            for number in sorted(publishing.results.keys() - done):
                result, given = publishing.results[number], sent[number]
                if result.HasField("error"):
                    raise TimeoutError(result.error.message)
                done.add(number)
                self.duplicates += result.is_duplicate
                self.unanswered.remove(given)
                offset = result.offset if result.HasField("offset") else None
                self.offsets[given.partition, given.sequence] = offset


async def publish_through_trouble(cluster: SimCluster) -> ThinPublisher:
    rng = random.Random(cluster.simulation.seed)
    await create_topic(cluster)
    publisher = ThinPublisher(cluster, rng)
    await publisher.create()
    troubled = asyncio.get_running_loop().create_task(trouble(cluster, rng))
    count = 0
    while count < RECORDS or not troubled.done():
        for _ in range(rng.randint(1, 20)):
            publisher.add(count)
            count += 1
        await publisher.run_until_answered()
        await asyncio.sleep(rng.uniform(0, 0.2))
    await troubled
    seen: dict[int, list[bytes | None]] = {partition: [] for partition in range(PARTITIONS)}
    where: dict[tuple[int, int], bytes | None] = {}
    for each in await read_all(cluster):
        seen[each.partition].append(each.value)
        where[each.partition, each.offset] = each.value
    for values in seen.values():
        assert values == [b"%d" % number for number in range(count)]
    for (partition, sequence), offset in publisher.offsets.items():
        if offset is not None:
            assert where[partition, offset] == b"%d" % sequence
    return publisher


async def subscribe_through_trouble(cluster: SimCluster) -> None:
    """Read on from the offset after the last record, by another broker whenever a stream ends."""
    rng = random.Random(cluster.simulation.seed)
    publishing = asyncio.get_running_loop().create_task(publish_through_trouble(cluster))
    hosts = [broker.host for broker in cluster.brokers.values()]
    seen: list[bytes] = []
    while not publishing.done() or len(seen) < RECORDS:
        channel = cluster.client_world.network.channel(Address(rng.choice(hosts), GRPC_PORT))
        subscribing = Subscribing(channel)
        place = pb.PartitionStart(topic=TOPIC, partition=0, offset=len(seen))
        try:
            async with asyncio.timeout(SILENCE_S):
                await subscribing.start(place, credit=pb.Credit(records=50))
            while True:
                async with asyncio.timeout(SILENCE_S):
                    found = await subscribing.records(1)
                seen += [each.value for each in found]
                await subscribing.grant(len(found))
        except (RpcError, TimeoutError):
            await asyncio.sleep(rng.uniform(0, 0.3))
        finally:
            await channel.close()
    await publishing
    assert seen == [b"%d" % number for number in range(len(seen))]


class GroupReader:
    """A member that commits what it has read, and takes another broker when its stream ends."""

    def __init__(self, cluster: SimCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.seen: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.streams = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        hosts = [broker.host for broker in self._cluster.brokers.values()]
        while True:
            self.streams += 1
            channel = self._cluster.client_world.network.channel(
                Address(self._rng.choice(hosts), GRPC_PORT)
            )
            try:
                await self._read(Subscribing(channel))
            except (RpcError, TimeoutError):
                await asyncio.sleep(self._rng.uniform(0, 0.3))
            finally:
                await channel.close()

    async def _read(self, subscribing: Subscribing) -> None:
        start = pb.SubscribeStart(
            group="g",
            topics=[TOPIC],
            offset_reset=pb.SubscribeStart.OFFSET_RESET_EARLIEST,
            credit=pb.Credit(records=30),
        )
        await subscribing.send(pb.SubscribeRequest(start=start))
        while True:
            async with asyncio.timeout(6 * SILENCE_S):
                response = await subscribing.receive()
            assert response is not None
            if records := response.records.records:
                partition = response.records.partition
                self.seen[partition] += [int(each.value) for each in records]
                commit = pb.Commit()
                commit.offsets.add(topic=TOPIC, partition=partition, offset=records[-1].offset + 1)
                await subscribing.send(pb.SubscribeRequest(commit=commit))
                await subscribing.grant(len(records))


async def read_as_a_group_through_trouble(cluster: SimCluster) -> None:
    """Each record reaches a member. Members go on where the group has committed, so what a member
    gets after an assignment goes on in order."""
    rng = random.Random(cluster.simulation.seed)
    publishing = asyncio.get_running_loop().create_task(publish_through_trouble(cluster))
    readers = [GroupReader(cluster, rng) for _ in range(2)]
    tasks = [asyncio.get_running_loop().create_task(each.run()) for each in readers]
    publisher = await publishing
    expected = dict.fromkeys(range(PARTITIONS), 0)
    for partition, sequence in publisher.offsets:
        expected[partition] = max(expected[partition], sequence + 1)

    def missing() -> int:
        return sum(
            count - len({number for each in readers for number in each.seen[partition]})
            for partition, count in expected.items()
        )

    async with asyncio.timeout(300):
        while missing():
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.5)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("seed", range(21, 24))
def test_every_record_reaches_a_member_of_a_group(seed: int) -> None:
    JudgedCluster(seed).run(read_as_a_group_through_trouble)


@pytest.mark.parametrize("seed", range(1, 5))
def test_every_record_is_written_once(seed: int) -> None:
    publisher = JudgedCluster(seed).run(publish_through_trouble)
    assert publisher.streams > 3


@pytest.mark.parametrize("seed", range(11, 13))
def test_every_record_is_read_once(seed: int) -> None:
    JudgedCluster(seed).run(subscribe_through_trouble)
