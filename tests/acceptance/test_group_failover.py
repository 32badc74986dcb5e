"""Groups whose coordinator dies, with real clients: nothing committed is read again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chaos.process_cluster import ProcessCluster
from metadata.internal_topics import GROUP_TOPIC, coordinating_partition
from stele import NewTopic
from stele.aio import Admin, Consumer, Producer
from tests.support.acceptance import running

pytestmark = pytest.mark.processes

GROUP, TOPIC, PARTITIONS = "readers", "orders", 3
OFFSETS_PARTITIONS = 4
OURS = next(  # another group of the same coordinator
    name
    for name in (f"ours-{number}" for number in range(1000))
    if coordinating_partition(name, OFFSETS_PARTITIONS)
    == coordinating_partition(GROUP, OFFSETS_PARTITIONS)
)
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ProcessCluster]:
    async with running(tmp_path, brokers=3, settings=SETTINGS) as cluster:
        yield cluster


async def coordinator(admin: Admin) -> int:
    (topic,) = await admin.describe_topics([GROUP_TOPIC])
    leader = topic.partitions[coordinating_partition(GROUP, len(topic.partitions))].leader
    assert leader is not None
    return leader


async def consume(consumer: Any, seen: list[bytes], count: int) -> None:
    """Read on until ``seen`` holds so many records; commit each batch before the next is read."""
    from aiokafka.errors import KafkaError

    async with asyncio.timeout(60):
        while len(seen) < count:
            for partition, records in (await consumer.getmany(timeout_ms=200)).items():
                values = [record.value for record in records]
                while True:
                    with contextlib.suppress(KafkaError):
                        await consumer.commit({partition: records[-1].offset + 1})
                        break
                seen += values


async def consume_ours(consumer: Consumer, seen: list[bytes], count: int) -> None:
    """The same with our consumer, whose commits wait for the next coordinator by themselves."""
    async with asyncio.timeout(60):
        while len(seen) < count:
            records = await consumer.poll(timeout_ms=200)
            await consumer.commit()
            seen += [record.value or b"" for record in records]


async def test_committed_records_are_read_once_though_the_coordinator_dies(
    cluster: ProcessCluster,
) -> None:
    from aiokafka import AIOKafkaConsumer

    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})])
        async with Producer(cluster.bootstrap_servers) as producer:

            async def fill(first: int) -> None:
                for number in range(first, first + 30):
                    await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                await producer.flush()

            await fill(0)
            seen: list[bytes] = []
            settings: dict[str, Any] = {
                "bootstrap_servers": cluster.bootstrap_servers,
                "group_id": GROUP,
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "session_timeout_ms": 6000,
            }
            seen_by_ours: list[bytes] = []
            ours = Consumer(**{**settings, "group_id": OURS})
            ours.subscribe([TOPIC])
            first = AIOKafkaConsumer(TOPIC, **settings)
            await first.start()
            try:
                await consume(first, seen, 30)
                await consume_ours(ours, seen_by_ours, 30)
                membership = ours.group_metadata()
                cluster.kill(await coordinator(admin))
                # An administrator waits for the next coordinator, which knows every commit.
                offsets = await admin.list_group_offsets(GROUP)
                assert sum(each.offset for each in offsets.values()) == 30
                await fill(30)
                await consume(first, seen, 60)
                await consume_ours(ours, seen_by_ours, 60)
                assert ours.group_metadata() == membership  # the next coordinator knows it
            finally:
                await first.stop()
                await ours.close()
            await fill(60)
            second = AIOKafkaConsumer(TOPIC, **settings)
            await second.start()
            try:
                await consume(second, seen, 90)
                found = await admin.group_lags(await admin.describe_groups([GROUP]))
                assert [each.lag for each in found[GROUP]] == [0] * PARTITIONS
                assert all(each.member is not None for each in found[GROUP])
            finally:
                await second.stop()
            async with Consumer(**{**settings, "group_id": OURS}) as ours:
                ours.subscribe([TOPIC])
                await consume_ours(ours, seen_by_ours, 90)
    for each in (seen, seen_by_ours):
        assert sorted(each, key=int) == [b"%d" % number for number in range(90)]
