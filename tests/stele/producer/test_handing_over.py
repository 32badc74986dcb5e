"""What a producer asks of topics and of its buffer before a record is in a batch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stele.aio import Producer
from stele.cluster.view import ClusterView
from stele.config import ProducerConfig
from stele.errors import ApiError, BufferFullError, ClosedError, ErrorCode
from stele.producer.accumulator import Accumulator
from stele.producer.arguments import LATEST_TIME_MS, new_record
from stele.producer.destinations import Destinations
from stele.producer.outcomes import BatchOutcome
from stele.producer.prepared import PreparedTransactions
from stele.records import ProducerRecord, RecordMetadata
from stele.wire.record import EncodedRecords
from tests.support.stele import Fault, Stage, on_stage


@on_stage
async def test_the_partition_of_a_key_is_not_known_before_its_topic_is(stage: Stage) -> None:
    config = ProducerConfig(bootstrap_servers=stage.cluster.bootstrap_servers)
    view = ClusterView(config, stage.world)
    assert Destinations(config, view).of_hash("t", 5) is None
    await view.close()


async def test_a_producer_has_the_real_world_unless_it_gets_another_one() -> None:
    async with Producer("127.0.0.1:9") as producer:
        assert producer.throttled_s == 0
        assert producer.in_flight(1) == 0
    await PreparedTransactions("127.0.0.1:9").close()


def test_what_other_threads_hand_over_fits_into_the_buffer() -> None:
    config = ProducerConfig()
    accumulator = Accumulator(config)
    assert not accumulator.hand_over(config.buffer_memory + 1, has_waited=False)
    assert accumulator.hand_over(config.buffer_memory, has_waited=False)
    assert accumulator.used_bytes == config.buffer_memory
    assert not accumulator.hand_over(1, has_waited=True)
    accumulator.take_over(config.buffer_memory)
    assert accumulator.used_bytes == 0


@on_stage
async def test_a_thread_hands_nothing_over_before_those_that_wait_for_room(stage: Stage) -> None:
    accumulator = Accumulator(ProducerConfig())
    waiting = asyncio.ensure_future(accumulator.wait_for_room(1))
    await asyncio.sleep(0)
    assert not accumulator.hand_over(1, has_waited=False)
    assert accumulator.hand_over(1, has_waited=True)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert accumulator.hand_over(1, has_waited=False)


class Told:
    """Hears of one record, in place of a future."""

    def __init__(self) -> None:
        self.heard: list[RecordMetadata | BaseException] = []

    def settle(self, outcome: BatchOutcome, number: int) -> None:
        self.heard.append(outcome.error or outcome.metadata(number))


@on_stage
async def test_records_that_were_handed_over_are_counted_once(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    partition.faults.append(Fault(ErrorCode.MESSAGE_TOO_LARGE))  # halves the batch
    async with stage.producer(linger_ms=1_000) as producer:
        await producer.partitions_for("t")
        told = [Told() for _ in range(7)]
        records = [
            new_record("t", b"%d" % number, b"k" * number, (), 5 + number, None, each)
            for number, each in enumerate(told)
        ]
        sizes = sum(each.size for each in records)
        assert all(producer.buffer.hand_over(each.size, has_waited=False) for each in records)
        assert producer.buffer.used_bytes == sizes
        producer.intake.take(records[0])  # it has an empty key, and chooses no partition
        count, size = producer.intake.take_run(records, 1)
        assert (count, size) == (6, sizes - records[0].size)
        producer.buffer.take_over(sizes)
        assert producer.buffer.used_bytes == sizes
        await producer.send_all([ProducerRecord("t", b"nobody waits")])
        await producer.flush()
        assert producer.buffer.used_bytes == 0
    assert [each.heard for each in told] == [[("t", 0, n, 5 + n)] for n in range(7)]
    assert stage.cluster.values() == [*(b"%d" % n for n in range(7)), b"nobody waits"]


@on_stage
async def test_a_producer_that_fails_tells_each_record_once(stage: Stage) -> None:
    stage.cluster.create("t")
    producer = stage.producer(linger_ms=1_000)
    await producer.partitions_for("t")
    told = [Told() for _ in range(3)]
    records = [new_record("t", b"v", b"k", (), None, None, each) for each in told]
    assert producer.intake.take_run(records, 0)[0] == 3
    await producer.abort()
    assert [[type(each) for each in one.heard] for one in told] == [[ClosedError]] * 3
    with pytest.raises(ClosedError):
        producer.intake.take_run(records, 0)


@pytest.mark.parametrize("name", ["\ud800", b"bytes", 1])
@on_stage
async def test_a_header_has_a_name_that_can_be_encoded(stage: Stage, name: Any) -> None:
    stage.cluster.create("t")
    async with stage.producer() as producer:
        with pytest.raises(ApiError, match="a header's name must be text") as refused:
            await producer.send("t", b"v", headers={name: b""})
        assert refused.value.code is ErrorCode.INVALID_RECORD


@on_stage
async def test_a_send_waits_max_block_ms_for_the_topic_and_for_room_together(
    stage: Stage,
) -> None:
    partition = stage.cluster.create("full").partitions[0]
    partition.faults.extend([Fault(ErrorCode.NOT_ENOUGH_REPLICAS)] * 10_000)
    options = {
        "batch_size": 2000,
        "buffer_memory": 2000,
        "max_request_size": 2000,
        "max_block_ms": 1000,
    }
    producer = stage.producer(**options)
    await producer.send("full", bytes(1900))
    loop = asyncio.get_running_loop()
    began = loop.time()
    loop.call_later(0.5, stage.cluster.create, "late")
    with pytest.raises(BufferFullError, match="max_block_ms=1000"):
        await producer.send("late", bytes(1900))
    assert loop.time() - began == pytest.approx(1.0, abs=0.05)
    await producer.abort()


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"partition": "0"}, ErrorCode.INVALID_RECORD),
        ({"partition": 0.0}, ErrorCode.INVALID_RECORD),
        ({"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
@on_stage
async def test_a_record_names_a_partition_by_its_number(
    stage: Stage, given: dict[str, Any], code: ErrorCode
) -> None:
    stage.cluster.create("t")
    async with stage.producer() as producer:
        with pytest.raises(ApiError) as refused:
            await producer.send("t", b"v", **given)
        assert refused.value.code is code


@pytest.mark.parametrize(
    ("timestamp_ms", "is_taken"),
    [(-1, False), (0, True), (LATEST_TIME_MS, True), (LATEST_TIME_MS + 1, False)],
)
@on_stage
async def test_a_record_has_a_time_since_1970(
    stage: Stage, timestamp_ms: int, *, is_taken: bool
) -> None:
    stage.cluster.create("t")
    async with stage.producer() as producer:
        if is_taken:
            delivery = await producer.send("t", b"v", timestamp_ms=timestamp_ms)
            assert (await delivery).timestamp_ms == timestamp_ms
            return
        with pytest.raises(ApiError) as refused:
            await producer.send("t", b"v", timestamp_ms=timestamp_ms)
        assert refused.value.code is ErrorCode.INVALID_TIMESTAMP


@on_stage
async def test_a_producer_that_was_closed_takes_nothing(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer() as producer:
        await producer.send("t", b"v")
    for call in (producer.send("t", b"w"), producer.send_encoded("t", EncodedRecords(b"", 1, 7))):
        with pytest.raises(ClosedError, match="the producer is closed"):
            await call
    with pytest.raises(ClosedError, match="the producer is closed"):
        producer.send_nowait("t", b"w")
    assert stage.cluster.values() == [b"v"]


@on_stage
async def test_encoded_records_are_at_least_one(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer() as producer:
        with pytest.raises(ApiError, match="at least one encoded record") as refused:
            await producer.send_encoded("t", EncodedRecords(b"", 0, 7))
        assert refused.value.code is ErrorCode.INVALID_RECORD
    assert not stage.cluster.partition().batches
