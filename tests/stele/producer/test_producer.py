"""The producer against a fake cluster on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.errors import (
    ApiError,
    BufferFullError,
    ClosedError,
    ConfigError,
    DeliveryTimeoutError,
    ErrorCode,
    SequenceError,
    SteleError,
    UnreachableError,
)
from stele.producer.partitioner import partition_of
from stele.producer.producer import Producer, TopicUnknownError
from stele.records import ProducerRecord
from stele.wire.batch import HEADER_SIZE, BatchBuilder, decode, read_header
from stele.wire.record import EncodedRecords
from tests.support.stele import Fault, Stage, on_stage

NUMBERS = [b"%d" % i for i in range(20)]


async def send_all(producer: Producer, values: list[bytes], **more: Any) -> list[Awaitable[Any]]:
    return [await producer.send("t", value, **more) for value in values]


@on_stage
async def test_records_arrive_in_order_and_futures_tell_where(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer() as producer:
        futures = await send_all(producer, NUMBERS, timestamp_ms=7)
        await producer.flush()
        metadata = [await future for future in futures]
    assert [each.offset for each in metadata] == list(range(20))
    assert {(each.topic, each.partition, each.timestamp_ms) for each in metadata} == {("t", 0, 7)}
    assert stage.cluster.values() == NUMBERS
    assert len(stage.cluster.partition().batches) == 1, "one batch while it lingers"


@on_stage
async def test_many_records_are_sent_without_futures_through_a_small_buffer(stage: Stage) -> None:
    stage.cluster.create("t", 2)
    values = [b"%d" % i + b"x" * 50 for i in range(3_000)]
    records = [
        ProducerRecord("t", value, b"k", [("h", b"1")], 7, number % 2)
        for number, value in enumerate(values)
    ]
    small = {"batch_size": 2_000, "buffer_memory": 10_000, "max_request_size": 4_000}
    async with stage.producer(**small) as producer:
        await producer.send_all(records)
        await producer.flush()
    for partition in range(2):
        assert stage.cluster.values("t", partition) == values[partition::2]


@on_stage
async def test_five_batches_of_a_partition_are_under_way_together(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer(batch_size=100, linger_ms=0) as producer:
        await (await producer.send("t", b"x" * 90))
        stage.cluster.stream_answers_take_s = 1.0
        await send_all(producer, [b"x" * 90] * 8)
        await asyncio.sleep(0.5)
        assert partition.produced == 6
    assert len(partition.batches) == 9


def encoded(*values: bytes) -> EncodedRecords:
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, timestamp_ms=7)
    return EncodedRecords(bytes(builder.build())[HEADER_SIZE:], len(values), 7)


@on_stage
async def test_encoded_records_are_batches_of_their_own_in_the_order_of_the_calls(
    stage: Stage,
) -> None:
    stage.cluster.create("t", 2)
    small = {"batch_size": 20_000, "buffer_memory": 140_000, "max_request_size": 100_000}
    async with stage.producer(compression="lz4", **small) as producer:
        await producer.send("t", b"before", partition=0)
        await producer.send_encoded("t", encoded(b"1", b"2"), 0)
        await producer.send("t", b"after", partition=0)
        for _ in range(50):  # more than the buffer takes
            await producer.send_encoded("t", encoded(bytes(9_000)), 1)
        await producer.flush()
        with pytest.raises(ApiError, match="has partitions 0 to 1, not 3"):
            await producer.send_encoded("t", encoded(b"x"), 3)
        with pytest.raises(ApiError, match="5 records of about 150") as caught:
            await producer.send_encoded("t", encoded(*[bytes(30_000)] * 5), 0)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        await producer.send_encoded("t", encoded(b"anywhere"))
    values = stage.cluster.values("t", 0)
    assert values[:4] == [b"before", b"1", b"2", b"after"]
    assert [read_header(each).record_count for each in stage.cluster.partition().batches][:3] == [
        1,
        2,
        1,
    ]
    both = values + stage.cluster.values("t", 1)
    assert (len(both), both.count(b"anywhere")) == (55, 1)


@on_stage
async def test_encoded_records_fail_the_flush(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer(delivery_timeout_ms=500) as producer:
        await producer.send_encoded("t", encoded(b"a"))
        await producer.flush()
        for broker in list(stage.cluster.alive):
            stage.cluster.kill(broker)
        await producer.send_encoded("t", encoded(b"b", b"c"))
        with pytest.raises(DeliveryTimeoutError) as caught:
            await producer.flush()
    assert "2 records were not delivered since the last flush" in caught.value.__notes__


@on_stage
async def test_records_without_futures_fail_the_flush_or_the_call(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer(delivery_timeout_ms=500) as producer:
        with pytest.raises(ApiError, match="has partitions 0 to 0, not 3"):
            await producer.send_all(
                [ProducerRecord("t", b"a"), ProducerRecord("t", b"b", partition=3)]
            )
        await producer.flush()
        assert stage.cluster.values() == [b"a"]
        for broker in list(stage.cluster.alive):
            stage.cluster.kill(broker)
        await producer.send_all([ProducerRecord("t", b"c")])
        with pytest.raises(DeliveryTimeoutError):
            await producer.flush()


@on_stage
async def test_keys_choose_the_partition_as_kafka_does(stage: Stage) -> None:
    stage.cluster.create("t", 6)
    async with stage.producer(compression="zstd") as producer:
        for i in range(50):
            key = b"key-%d" % i
            metadata = await (await producer.send("t", b"v", key=key, headers={"h": b"1"}))
            assert metadata.partition == partition_of(key, 6)


@on_stage
async def test_a_long_key_is_hashed_in_turns_and_chooses_the_same_partition(stage: Stage) -> None:
    stage.cluster.create("t", 6)
    async with stage.producer() as producer:
        await producer.send("t", b"first")
        for number in range(3):
            key = bytes([number]) * 200_000
            sending = asyncio.ensure_future(producer.send("t", b"v", key=key))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not sending.done(), "other tasks run meanwhile"
            assert (await (await sending)).partition == partition_of(key, 6)


@on_stage
async def test_keyless_records_are_spread_over_partitions(stage: Stage) -> None:
    stage.cluster.create("t", 4)
    used = set()
    async with stage.producer() as producer:
        for _ in range(40):
            used.add((await (await producer.send("t", b"v"))).partition)
    assert used == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(ErrorCode.NOT_ENOUGH_REPLICAS),
        Fault(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, applied=True),
        Fault(ErrorCode.NOT_LEADER_OR_FOLLOWER, applied=True),
        Fault(ErrorCode.REQUEST_TIMED_OUT, applied=True),
        Fault(ErrorCode.KAFKA_STORAGE_ERROR),
        Fault(breaks=True),
        Fault(silent=True),
    ],
    ids=lambda fault: f"{fault.error.name}-{'silent' if fault.silent else fault.breaks}",
)
@on_stage
async def test_a_failure_that_may_pass_is_repeated_without_a_copy(
    stage: Stage, fault: Fault
) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer(batch_size=60, request_timeout_ms=500) as producer:
        await (await producer.send("t", b"first"))
        partition.faults.append(fault)
        await send_all(producer, NUMBERS)
    assert stage.cluster.values() == [b"first", *NUMBERS]


@on_stage
async def test_a_killed_leader_is_followed_to_its_successor(stage: Stage) -> None:
    cluster = stage.cluster
    partition = cluster.create("t").partitions[0]
    async with stage.producer(batch_size=60) as producer:
        futures = await send_all(producer, NUMBERS[:10])
        await asyncio.sleep(0.0015)  # some are on their way
        cluster.kill(1)
        futures += await send_all(producer, NUMBERS[10:])
        await asyncio.sleep(1)
        assert not all(future.done() for future in futures)  # type: ignore[attr-defined]
        assert any("no leader" in wait for wait in stage.waits)
        cluster.move_leader(partition, 2)
    assert cluster.values() == NUMBERS


@on_stage
async def test_a_leader_hint_saves_the_wait_for_metadata(stage: Stage) -> None:
    cluster = stage.cluster
    partition = cluster.create("t").partitions[0]
    async with stage.producer(linger_ms=0, retry_backoff_ms=1000) as producer:
        await (await producer.send("t", b"1"))
        cluster.move_leader(partition, 3)
        before = cluster.clock.monotonic()
        await (await producer.send("t", b"2"))
        assert cluster.clock.monotonic() - before < 0.1


@pytest.mark.parametrize("is_kafkas", [False, True])
@on_stage
async def test_a_leader_older_than_the_one_that_acknowledged_is_not_gone_back_to(
    stage: Stage, is_kafkas: bool
) -> None:
    """Kafka's acknowledgements do not name the leader. There the producer asks the deposed one,
    until the metadata tell of the later one."""
    cluster = stage.cluster
    cluster.is_kafkas = is_kafkas
    partition = cluster.create("t").partitions[0]
    async with stage.producer(linger_ms=0, metadata_max_age_ms=1000) as producer:
        await (await producer.send("t", b"1"))
        cluster.move_leader(partition, 2)
        partition.deposed, partition.told = 2, (2, partition.leader_epoch)
        cluster.move_leader(partition, 1)
        await (await producer.send("t", b"2"))  # the first leader again, in a later epoch
        await asyncio.sleep(5)  # metadata has come with the epoch between
        if is_kafkas:
            asyncio.get_running_loop().call_later(0.3, setattr, partition, "told", None)
        await (await producer.send("t", b"3"))
    assert cluster.values() == [b"1", b"2", b"3"]


@on_stage
async def test_a_leader_that_hangs_is_left_when_another_is_elected(stage: Stage) -> None:
    cluster = stage.cluster
    partition = cluster.create("t").partitions[0]
    async with stage.producer(request_timeout_ms=30_000) as producer:
        await (await producer.send("t", b"1"))
        partition.faults.append(Fault(silent=True))
        before = cluster.clock.monotonic()
        future = await producer.send("t", b"2")
        await asyncio.sleep(2)
        cluster.move_leader(partition, 2)
        await future
        assert cluster.values() == [b"1", b"2"]
        assert cluster.clock.monotonic() - before < 5


@pytest.mark.parametrize("hung", [1, 2, 3])
@on_stage
async def test_a_broker_that_hangs_keeps_no_metadata_from_a_producer(
    stage: Stage, hung: int
) -> None:
    """Nothing of its process moves. The others tell which leader there is by now."""

    cluster = stage.cluster
    partition = cluster.create("t").partitions[0]
    cluster.move_leader(partition, hung)
    async with stage.producer(request_timeout_ms=30_000) as producer:
        await (await producer.send("t", b"1"))
        cluster.frozen = {hung}
        future = await producer.send("t", b"2")
        await asyncio.sleep(3)
        cluster.move_leader(partition, hung % 3 + 1)
        moved = cluster.clock.monotonic()
        await future
        assert cluster.values() == [b"1", b"2"]
        assert cluster.clock.monotonic() - moved < 2


@on_stage
async def test_too_few_replicas_until_the_deadline(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    partition.faults.extend([Fault(ErrorCode.NOT_ENOUGH_REPLICAS, message="isr is 1")] * 1000)
    producer = stage.producer(delivery_timeout_ms=5000)
    future = await producer.send("t", b"1")
    with pytest.raises(DeliveryTimeoutError, match="NOT_ENOUGH_REPLICAS") as failure:
        await producer.close()
    assert failure.value.maybe_written is False
    assert isinstance(future.exception(), DeliveryTimeoutError)
    assert any("isr is 1" in wait for wait in stage.waits)
    assert stage.cluster.values() == []


@on_stage
async def test_an_unknown_outcome_is_reported_as_such_and_the_next_records_go_on(
    stage: Stage,
) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer(delivery_timeout_ms=1000, request_timeout_ms=500) as producer:
        await (await producer.send("t", b"0"))
        partition.faults.extend([Fault(silent=True)] * 2)
        lost = await producer.send("t", b"1")
        with pytest.raises(DeliveryTimeoutError, match="may have been written") as failure:
            await lost
        assert failure.value.maybe_written
        with pytest.raises(DeliveryTimeoutError):
            await producer.flush()
        partition.faults.clear()
        assert (await (await producer.send("t", b"2"))).offset == 2
    assert stage.cluster.values() == [b"0", b"1", b"2"]
    producers = {key[0] for key in partition.sequences}
    assert len(producers) == 2, "a new producer id after an outcome that is not known"


@on_stage
async def test_a_refusal_for_good_takes_only_its_own_batch(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    partition.faults.append(Fault(ErrorCode.MESSAGE_TOO_LARGE))
    producer = stage.producer(batch_size=1, linger_ms=0)
    futures = await send_all(producer, NUMBERS[:5])
    with pytest.raises(ApiError, match=r"max\.message\.bytes") as failure:
        await producer.close()
    assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert [future.exception() is None for future in futures] == [False] + [True] * 4  # type: ignore[attr-defined]
    assert stage.cluster.values() == NUMBERS[1:5]


@on_stage
async def test_a_broker_that_lost_acknowledged_records_fails_the_producer(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    producer = stage.producer()
    await (await producer.send("t", b"1"))
    partition.expected.clear()
    partition.sequences.clear()
    future = await producer.send("t", b"2")
    with pytest.raises(SequenceError, match="acknowledged records may be lost"):
        await future
    with pytest.raises(ClosedError, match="the producer has failed"):
        await producer.send("t", b"3")
    with pytest.raises(SequenceError):
        await producer.close()


@on_stage
async def test_the_buffer_is_bounded_and_waits_for_room(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer(
        batch_size=1000, buffer_memory=5000, max_request_size=5000, max_block_ms=2000
    ) as producer:
        await (await producer.send("t", b""))
        partition.faults.extend([Fault(ErrorCode.NOT_ENOUGH_REPLICAS)] * 10_000)
        with pytest.raises(BufferFullError, match="NOT_ENOUGH_REPLICAS"):
            await send_all(producer, [b"x" * 400] * 20)
        with pytest.raises(BufferFullError):
            producer.send_nowait("t", b"x" * 1000)
        partition.faults.clear()
        await producer.room()
        await producer.send_nowait("t", b"z" * 4500)  # the largest that may be sent
        await send_all(producer, [b"y" * 400] * 20)
    values = stage.cluster.values()
    assert values.count(b"y" * 400) == 20


@on_stage
async def test_send_nowait_needs_a_known_topic(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer() as producer:
        with pytest.raises(TopicUnknownError):
            producer.send_nowait("t", b"1")
        assert await producer.partitions_for("t") == [0]
        producer.send_nowait("t", b"1")
        stage.cluster.create("empty", 0)
        assert await producer.partitions_for("empty") == []
        with pytest.raises(TopicUnknownError, match="partitions of topic 'empty' are not known"):
            producer.send_nowait("empty", b"1")
    assert stage.cluster.values() == [b"1"]


@on_stage
async def test_no_broker_at_all(stage: Stage) -> None:
    for broker in stage.cluster.alive:
        stage.cluster.kill(broker)
    producer = stage.producer(max_block_ms=2000)
    with pytest.raises(UnreachableError, match="Are these the Kafka ports"):
        await producer.send("t", b"1")
    await producer.close()


@on_stage
async def test_without_idempotence_and_without_answers(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer(acks=0) as producer:
        futures = await send_all(producer, NUMBERS)
        await producer.flush()
        assert [(await future).offset for future in futures] == [-1] * 20
        await asyncio.sleep(0.01)
    assert stage.cluster.values() == NUMBERS
    assert not stage.cluster.partition().sequences


@on_stage
async def test_an_error_in_the_block_does_not_wait_for_deliveries(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    before = stage.cluster.clock.monotonic()
    futures = []

    async def fail_half_way() -> None:
        async with stage.producer() as producer:
            partition.faults.append(Fault(silent=True))
            futures.append(await producer.send("t", b"1"))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail_half_way()
    assert isinstance(futures[0].exception(), ClosedError)
    assert stage.cluster.clock.monotonic() - before < 1


@on_stage
async def test_options_that_cannot_be(stage: Stage) -> None:
    with pytest.raises(ConfigError, match="acks='all'"):
        stage.producer(acks=1, enable_idempotence=True)
    with pytest.raises(ConfigError, match="at most 5"):
        stage.producer(max_in_flight=6)
    with pytest.raises(ConfigError, match="one of: none, gzip"):
        stage.producer(compression="zip")
    with pytest.raises(ConfigError, match="host:port"):
        Producer("localhost", world=stage.world)


FAULTS = st.builds(
    Fault,
    error=st.sampled_from(
        [
            ErrorCode.NONE,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.REQUEST_TIMED_OUT,
        ]
    ),
    applied=st.booleans(),
    silent=st.booleans(),
    breaks=st.booleans(),
)


@settings(max_examples=60)
@given(
    st.lists(st.lists(FAULTS, max_size=8), min_size=3, max_size=3),
    st.lists(st.sampled_from([1, 2, 3]), max_size=4),
    st.integers(0, 1000),
)
@on_stage
async def test_everything_once_and_in_order_through_any_weather(
    stage: Stage, faults: list[list[Fault]], moves: list[int], seed: int
) -> None:
    topic = stage.cluster.create("t", 3)
    for number, partition in topic.partitions.items():
        partition.faults.extend(faults[number])
    async with stage.producer(
        batch_size=100, request_timeout_ms=400, linger_ms=1, delivery_timeout_ms=600_000
    ) as producer:
        for i in range(90):
            await producer.send("t", b"%d" % i, partition=i % 3)
            if i % 10 == 0:
                await asyncio.sleep(0.002)
            if i % 20 == 0 and moves:
                stage.cluster.move_leader(topic.partitions[i % 3], moves.pop())
    for number in range(3):
        assert stage.cluster.values("t", number) == [b"%d" % i for i in range(number, 90, 3)]


@on_stage
async def test_a_tombstone_has_a_key_and_no_value(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer() as producer:
        delivery = await producer.send("t", None, key=b"k", headers={"h": None})
        await producer.flush()
        assert (await delivery).offset == 0
    (batch,) = stage.cluster.partition().batches
    (record,) = decode(batch)
    assert (record.key, record.value, list(record.headers)) == (b"k", None, [("h", None)])


@on_stage
async def test_only_bytes_are_taken(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer() as producer:
        changing = bytearray(b"as it was")
        await producer.send("t", changing)  # type: ignore[arg-type]
        changing[:] = b"then    x"
        for wrong in ({"value": "text"}, {"value": b"", "key": 1}):
            with pytest.raises(ApiError, match="must be bytes") as failure:
                await producer.send("t", **wrong)
            assert failure.value.code is ErrorCode.INVALID_RECORD
        with pytest.raises(ApiError, match="header 'h' must be bytes"):
            await producer.send("t", b"", headers={"h": "text"})  # type: ignore[arg-type]
    assert stage.cluster.values() == [b"as it was"]


@on_stage
async def test_a_bug_stops_the_producer_loudly(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.cluster.create("t")
    producer = stage.producer()
    await (await producer.send("t", b"1"))
    monkeypatch.setattr("stele.producer.sender.LONGEST_PAUSE_S", None)
    future = await producer.send("t", b"2")
    with pytest.raises(SteleError, match="a bug in the producer"):
        await future
    with pytest.raises(SteleError, match="a bug"):
        await producer.close()
    assert "bug" in caplog.text
