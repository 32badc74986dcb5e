"""Our client on real brokers: records, groups whose coordinator dies, transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import pytest

from chaos.process_cluster import ProcessCluster
from metadata.internal_topics import GROUP_TOPIC, coordinating_partition
from stele import Consumer, NewTopic, Producer
from stele.aio import Admin
from stele.aio import Consumer as AioConsumer
from stele.aio import Producer as AioProducer
from stele.errors import ProducerFencedError, TransactionAbortableError
from stele.ids import TopicPartition

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]
PARTITIONS = 4
WITHIN_S = 60.0


def test_records_of_any_producer_are_read(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(3)
    values = [b"%d" % number * 100 for number in range(3000)]
    with (
        Producer(bootstrap, compression="lz4") as compressed,
        Producer(bootstrap) as plain,
        Producer(bootstrap, acks=0) as unanswered,
    ):
        for number, value in enumerate(values):
            producer = (compressed, plain, unanswered)[number % 3]
            producer.send(topic, value, partition=number % 3, headers=[("n", b"%d" % number)])
    first = TopicPartition(topic, 0)
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, partition) for partition in range(3)])
        read: list[bytes] = []
        while len(read) < len(values):
            read += [each.value or b"" for each in consumer.poll(timeout_ms=1000)]
        assert sorted(read) == sorted(values)
        assert consumer.end_offsets([first]) == {first: 1000}
        found = consumer.offsets_for_times({first: 0})[first]
        assert found is not None
        assert found.offset == 0


class Member:
    """Reads what it is assigned, and commits each batch before it takes it for done."""

    def __init__(
        self,
        cluster: ProcessCluster,
        topic: str,
        group: str,
        protocol: Literal["classic", "consumer"],
    ) -> None:
        self.done: list[bytes] = []
        self.consumer = AioConsumer(
            cluster.bootstrap_servers,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
        )
        self.consumer.subscribe([topic])
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            records = await self.consumer.poll(timeout_ms=200)
            if records:
                await self.consumer.commit()
                self.done += [each.value or b"" for each in records]

    async def stop(self) -> None:
        self.reading.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)
        await self.consumer.close()


async def until(condition: Callable[[], bool], members: list[Member]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            for member in members:
                if member.reading.done():
                    member.reading.result()
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_members_share_a_group_though_its_coordinator_dies(
    process_cluster: ProcessCluster, protocol: Literal["classic", "consumer"]
) -> None:
    cluster, bootstrap = process_cluster, process_cluster.bootstrap_servers
    topic, group = f"shared-{protocol}", f"sharing-{protocol}"
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 3, {"min.insync.replicas": "2"})])
        async with AioProducer(bootstrap) as producer:
            sent: list[bytes] = []

            async def fill(count: int) -> None:
                for _ in range(count):
                    sent.append(b"%d" % len(sent))
                    await producer.send(topic, sent[-1], partition=len(sent) % PARTITIONS)
                await producer.flush()

            await fill(40)
            members = [Member(cluster, topic, group, protocol) for _ in range(2)]
            try:

                def share() -> list[int]:
                    return [len(each.consumer.assignment()) for each in members]

                def all_done() -> bool:
                    return sorted(b for each in members for b in each.done) == sorted(sent)

                await until(lambda: share() == [2, 2] and all_done(), members)
                (internal,) = await admin.describe_topics([GROUP_TOPIC])
                number = coordinating_partition(group, len(internal.partitions))
                leader = internal.partitions[number].leader
                assert leader is not None
                cluster.kill(leader)
                try:
                    await fill(40)
                    await until(all_done, members)  # each record once, though commits had to move
                    assert share() == [2, 2]
                finally:
                    await cluster.restart(leader)
                await members[0].stop()
                await fill(20)
                await until(lambda: share()[1] == PARTITIONS and all_done(), members[1:])
            finally:
                for member in members:
                    await member.stop()
            found = await admin.list_group_offsets(group)
            assert sum(each.offset for each in found.values()) == len(sent)


def test_a_transaction_counts_as_a_whole(bootstrap: str, create_topic: CreateTopic) -> None:
    topic, results = create_topic(2), create_topic(1)
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=number % 2)
    with (
        Consumer(
            bootstrap,
            group_id="transformers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as source,
        Producer(bootstrap, transactional_id="whole") as producer,
    ):
        source.subscribe([topic])
        read = 0
        while read < 10:
            records = source.poll(timeout_ms=1000)
            if not records:
                continue
            producer.begin_transaction()
            producer.send(results, b"not this")
            producer.send_offsets(source)
            producer.abort_transaction()
            with producer.transaction():
                for record in records:
                    producer.send(results, record.value)
                producer.send_offsets(source)
            read += len(records)
        committed = source.committed([(topic, 0), (topic, 1)])
        assert [each.offset for each in committed.values() if each is not None] == [5, 5]
        with Producer(bootstrap, transactional_id="whole") as successor:
            with successor.transaction():
                successor.send(results, b"successor")
            with pytest.raises(TransactionAbortableError), producer.transaction():
                producer.send(results, b"fenced")
            with pytest.raises(ProducerFencedError):
                producer.begin_transaction()
    expected = sorted([b"%d" % number for number in range(10)] + [b"successor"])
    with Consumer(
        bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign([(results, 0)])
        found: list[bytes] = []
        while len(found) < len(expected):
            found += [each.value or b"" for each in consumer.poll(timeout_ms=1000)]
        assert sorted(found) == expected


def test_a_prepared_transaction_is_completed_by_another_producer(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(1)
    with Producer(
        bootstrap,
        transactional_id="two-phases",
        transaction_two_phase_commit_enable=True,
    ) as producer:
        producer.begin_transaction()
        producer.send(topic, b"decided elsewhere")
        prepared = producer.prepare_transaction()
    for is_first in (True, False):
        with Producer(
            bootstrap,
            transactional_id="two-phases",
            transaction_two_phase_commit_enable=True,
        ) as producer:
            assert producer.complete_transaction(prepared) is is_first
    with Consumer(
        bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([(topic, 0)])
        while not (records := consumer.poll(timeout_ms=1000)):
            pass
        assert [each.value for each in records] == [b"decided elsewhere"]
