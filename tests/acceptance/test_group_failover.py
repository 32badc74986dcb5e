"""A group whose coordinator dies, with a real client: nothing committed is read again."""

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
from stele.aio import Admin, Producer

pytestmark = pytest.mark.processes

GROUP, TOPIC, PARTITIONS = "readers", "orders", 3
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ProcessCluster]:
    cluster = ProcessCluster(tmp_path, controllers=1, brokers=3, settings=SETTINGS)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


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
            settings = {
                "bootstrap_servers": cluster.bootstrap_servers,
                "group_id": GROUP,
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "session_timeout_ms": 6000,
            }
            first = AIOKafkaConsumer(TOPIC, **settings)
            await first.start()
            try:
                await consume(first, seen, 30)
                cluster.kill(await coordinator(admin))
                # An administrator waits for the next coordinator, which knows every commit.
                offsets = await admin.list_group_offsets(GROUP)
                assert sum(each.offset for each in offsets.values()) == 30
                await fill(30)
                await consume(first, seen, 60)
            finally:
                await first.stop()
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
    assert sorted(seen, key=int) == [b"%d" % number for number in range(90)]
