"""What a consumer asks of brokers, and what not, against a fake cluster on virtual time."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest

from stele.cluster.messages import FetchAnswer, FetchRequest
from stele.cluster.metrics_push import Measured
from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.assigned import AssignedPartitions
from stele.errors import ApiError, ClosedError, ErrorCode, UnreadableBatchError
from stele.ids import TopicPartition
from tests.stele.consumer.test_consumer import append, read
from tests.support.stele import Stage, on_stage

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def noted_requests(stage: Stage) -> list[FetchRequest]:
    fetch = stage.cluster.fetch
    requests: list[FetchRequest] = []

    async def noted(broker: int, request: FetchRequest) -> list[FetchAnswer]:
        requests.append(request)
        return await fetch(broker, request)

    stage.cluster.fetch = noted  # type: ignore[method-assign]
    return requests


@on_stage
async def test_a_fetch_asks_for_no_more_bytes_than_there_is_room_for(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    for _ in range(3):
        append(partition, b"x" * 1000)
    size = len(partition.batches[0])
    requests = noted_requests(stage)
    async with stage.consumer(prefetch_bytes=3 * size, fetch_max_bytes=2 * size) as consumer:
        consumer.assign([T0])
        await consumer.poll(1)
        await asyncio.sleep(5)
        assert requests[0].max_bytes == 2 * size, "as fetch_max_bytes allows"
        for _ in range(2):
            append(partition, b"x" * 1000)
        await asyncio.sleep(5)
        await consumer.poll(1)
        await asyncio.sleep(5)
        assert all(each.max_bytes <= 3 * size for each in requests)
        assert min(each.max_bytes for each in requests) == size, "two of three wait to be polled"


@on_stage
async def test_nothing_is_fetched_while_there_is_no_room_at_all(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    for _ in range(2):
        append(partition, b"x" * 1000)
    size = len(partition.batches[0])
    requests = noted_requests(stage)
    async with stage.consumer(prefetch_bytes=size, max_partition_fetch_bytes=size) as consumer:
        consumer.assign([T0])
        await consumer.poll(1)
        await asyncio.sleep(1)
        before = len(requests)
        await asyncio.sleep(5)
        assert len(requests) == before
        assert "prefetch_bytes are fetched" not in consumer.why()[T0], "there are records"


@on_stage
async def test_a_partition_that_is_stopped_is_not_fetched(stage: Stage) -> None:
    topic = stage.cluster.create("t", 2)
    append(topic.partitions[0], b"a")
    struct.pack_into(">I", topic.partitions[0].batches[0], 17, 1)  # another CRC
    requests = noted_requests(stage)
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        with pytest.raises(UnreadableBatchError):
            await consumer.poll(timeout_ms=1000)
        await asyncio.sleep(1)
        before = len(requests)
        await asyncio.sleep(5)
        assert len(requests) == before
        with pytest.raises(UnreadableBatchError):
            await consumer.poll(timeout_ms=1000)


@on_stage
async def test_a_broker_that_lets_the_client_wait_for_its_quota_has_not_failed(
    stage: Stage,
) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.consumer(retry_backoff_ms=5_000, retry_backoff_max_ms=5_000) as consumer:
        consumer.assign([T0])
        await consumer.poll(timeout_ms=1000)
        asked = stage.cluster.metadata_requests
        partition.fetch_errors.append(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        append(partition, b"a")
        began = stage.cluster.clock.monotonic()
        assert len(await read(consumer, 1)) == 1
        assert stage.cluster.clock.monotonic() - began < 1
        assert stage.cluster.metadata_requests == asked


@on_stage
async def test_what_nobody_may_read_is_refused_by_a_nearby_replica_as_well(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    partition.nearby = [2]
    append(partition, b"a")
    partition.nearby_errors.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with stage.consumer(client_rack="r2") as consumer:
        consumer.assign([T0])
        with pytest.raises(ApiError) as failure:
            await read(consumer, 1)
        assert failure.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@on_stage
async def test_a_position_that_is_not_found_costs_no_more_than_the_time_for_it(
    stage: Stage,
) -> None:
    stage.cluster.create("t").partitions[0].leader = -1
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        began = stage.cluster.clock.monotonic()
        with pytest.raises(ApiError, match="is not known in time"):
            await consumer.position("t", 0, timeout_ms=300)
        assert stage.cluster.clock.monotonic() - began == pytest.approx(0.3, abs=0.01)


@on_stage
async def test_a_closed_consumer_says_so(stage: Stage) -> None:
    stage.cluster.create("t")
    consumer = stage.consumer()
    consumer.assign([T0])
    await consumer.close()
    for call in (consumer.poll, consumer.poll_batches, consumer.unsubscribe):
        with pytest.raises(ClosedError):
            await call()
    with pytest.raises(ClosedError):
        consumer.assign([T0])


@on_stage
async def test_the_lag_is_that_of_the_partition_that_is_furthest_behind(stage: Stage) -> None:
    """A partition whose position or end is not known has none."""
    config = ConsumerConfig(bootstrap_servers=stage.cluster.bootstrap_servers)
    view = ClusterView(config, stage.world)
    measures: list[Callable[[], Measured]] = []
    view.metrics.begin = measures.append  # type: ignore[method-assign,assignment]
    assigned = AssignedPartitions(config, view)
    (measured,) = measures

    def lag() -> float:
        return measured().gauges["org.apache.kafka.consumer.fetch.manager.records.lag.max"]

    assert lag() == 0
    assigned.take([T0, T1, T2])
    assert lag() == 0
    assigned.positions[T0].seek(5)
    assert lag() == 0
    assigned.positions[T0].high_watermark = 9
    assigned.positions[T1].seek(5)
    assigned.positions[T1].high_watermark = 7
    assert lag() == 4
    await view.close()
