"""Which batches a producer sends together, and when."""

from __future__ import annotations

import asyncio

import pytest

from stele.cluster.messages import ProduceAnswer, ProduceRequest
from stele.errors import ClosedError, ErrorCode, SteleError
from stele.records import ProducerRecord
from stele.wire.batch import BatchBuilder, read_header
from stele.wire.record import record_size_bound
from tests.support.stele import Fault, Stage, on_stage

VALUE = bytes(900)


def batch_bytes(value: bytes) -> int:
    builder = BatchBuilder()
    builder.append(None, value, timestamp_ms=1)
    return len(builder.build())


def noted(stage: Stage) -> list[list[int]]:
    """The partitions of each request, to whichever broker."""
    found: list[list[int]] = []
    produce = stage.cluster.produce

    def note(broker: int, request: ProduceRequest) -> tuple[list[ProduceAnswer] | None, bool]:
        found.append([each.partition for each in request.partitions])
        return produce(broker, request)

    stage.cluster.produce = note  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize(
    ("room_bytes", "requests"),
    [
        (2 * batch_bytes(VALUE), [[0, 1], [2, 3]]),
        (2 * batch_bytes(VALUE) - 1, [[0], [1], [2], [3]]),
    ],
)
@on_stage
async def test_a_request_holds_as_many_batches_as_max_request_size_allows(
    stage: Stage, room_bytes: int, requests: list[list[int]]
) -> None:
    for partition in stage.cluster.create("t", 4).partitions.values():
        partition.leader = 1
    found = noted(stage)
    options = {"batch_size": batch_bytes(VALUE), "max_request_size": room_bytes}
    async with stage.producer(linger_ms=50, **options) as producer:
        for number in range(4):
            await producer.send("t", VALUE, partition=number)
    assert found == requests


@pytest.mark.parametrize(("room", "counts"), [(0, [2]), (-1, [1, 1])])
@on_stage
async def test_a_batch_takes_records_up_to_its_size(
    stage: Stage, room: int, counts: list[int]
) -> None:
    partition = stage.cluster.create("t").partitions[0]
    size = batch_bytes(VALUE) + record_size_bound(None, VALUE) + room
    async with stage.producer(linger_ms=50, batch_size=size) as producer:
        for _ in range(2):
            await producer.send("t", VALUE, timestamp_ms=1)
    assert [read_header(each).record_count for each in partition.batches] == counts


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
@on_stage
async def test_a_producer_id_that_somebody_else_uses_stops_the_producer(
    stage: Stage, code: ErrorCode
) -> None:
    """Two that number their batches alike would take each other's for repeated ones."""
    stage.cluster.create("t").partitions[0].faults.append(Fault(error=code))
    producer = stage.producer()
    delivery = await producer.send("t", b"v")
    with pytest.raises(SteleError, match="another instance uses this producer id"):
        await delivery
    assert producer.has_failed
    with pytest.raises(ClosedError, match="another instance"):
        await producer.send("t", b"v")
    await producer.abort()


@on_stage
async def test_a_record_as_large_as_a_request_may_be_is_sent(stage: Stage) -> None:
    """With the header of its batch it is larger than max_request_size."""
    stage.cluster.create("t")
    size = record_size_bound(None, VALUE)
    assert batch_bytes(VALUE) > size
    async with stage.producer(batch_size=500, max_request_size=size) as producer:
        await producer.send("t", VALUE)
    assert stage.cluster.values() == [VALUE]


@on_stage
async def test_a_batch_leaves_when_it_has_lingered_however_many_wait(stage: Stage) -> None:
    stage.cluster.create("t", 3)
    loop = asyncio.get_running_loop()
    async with stage.producer(linger_ms=50) as producer:
        await producer.partitions_for("t")
        began = loop.time()
        ends = []
        for number in range(3):
            delivery = await producer.send("t", b"v", partition=number)
            delivery.add_done_callback(lambda _: ends.append(loop.time() - began))
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
    assert ends == pytest.approx([0.05, 0.07, 0.09], abs=0.01)


@on_stage
async def test_a_full_batch_leaves_before_it_has_lingered(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer(linger_ms=60_000, batch_size=batch_bytes(VALUE)) as producer:
        first, second = [await producer.send("t", VALUE) for _ in range(2)]
        async with asyncio.timeout(1):
            await first
        assert not second.done(), "it lingers until its batch is full"


@on_stage
async def test_a_flush_waits_for_no_linger(stage: Stage) -> None:
    stage.cluster.create("t", 2)
    async with stage.producer(linger_ms=60_000, batch_size=batch_bytes(VALUE)) as producer:
        for number in (0, 0, 0, 1):
            await producer.send("t", VALUE, partition=number)
        async with asyncio.timeout(1):
            await producer.flush()


@on_stage
async def test_a_batch_that_fails_waits_for_its_own_next_attempt(stage: Stage) -> None:
    """The pause of one partition does not delay the others, nor is it longer than it has to be."""
    topic = stage.cluster.create("t", 2)
    topic.partitions[0].faults.append(Fault(error=ErrorCode.NOT_ENOUGH_REPLICAS))
    loop = asyncio.get_running_loop()
    async with stage.producer(linger_ms=0, retry_backoff_ms=100) as producer:
        await producer.partitions_for("t")
        began = loop.time()
        slow, fast = [await producer.send("t", b"v", partition=number) for number in range(2)]
        await fast
        assert loop.time() - began < 0.05
        await slow
        assert 0.05 < loop.time() - began < 0.3


@on_stage
async def test_a_producer_without_records_does_not_ask_for_the_metadata(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.producer() as producer:
        await (await producer.send("t", b"v"))
        asked = stage.cluster.metadata_requests
        await asyncio.sleep(60)
        assert stage.cluster.metadata_requests == asked


@on_stage
async def test_records_without_a_key_go_where_there_is_a_leader(stage: Stage) -> None:
    stage.cluster.create("t", 3)
    stage.cluster.kill(1)
    async with stage.producer(linger_ms=0) as producer:
        used = {(await (await producer.send("t", b"v"))).partition for _ in range(20)}
    assert used == {1, 2}


@on_stage
async def test_many_records_let_other_tasks_run_once_in_a_while(stage: Stage) -> None:
    """Each turn of the event loop costs more than a record does."""
    stage.cluster.create("t")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with stage.producer(linger_ms=1000) as producer:
        await producer.partitions_for("t")
        counting = asyncio.ensure_future(count())
        await producer.send_all(ProducerRecord("t", b"v") for _ in range(3_000))
        counting.cancel()
    assert 3 <= turns < 100


# ------------------------------------------------------------------------ failures


@on_stage
async def test_a_flush_raises_the_first_failure_and_counts_all_records(stage: Stage) -> None:
    topic = stage.cluster.create("t", 2)
    errors = ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP
    for number, error in enumerate(errors):
        topic.partitions[number].faults.append(Fault(error=error))
    async with stage.producer(linger_ms=0) as producer:
        for number in range(2):
            delivery = await producer.send("t", b"v", partition=number)
            await asyncio.wait([delivery])
        with pytest.raises(SteleError) as failed:
            await producer.flush()
        assert str(failed.value) == "INVALID_RECORD: t-0: INVALID_RECORD"
        assert failed.value.__notes__ == ["2 records were not delivered since the last flush"]
        await producer.flush()  # tells each failure once


@on_stage
async def test_a_record_without_a_key_waits_for_a_leader_of_any_partition(stage: Stage) -> None:
    topic = stage.cluster.create("t", 2)
    for partition in topic.partitions.values():
        partition.leader = -1
    async with stage.producer(linger_ms=0, metadata_max_age_ms=1000) as producer:
        delivery = await producer.send("t", b"v")
        await asyncio.sleep(2)
        assert not delivery.done()
        for partition in topic.partitions.values():
            stage.cluster.move_leader(partition, 1)
        await delivery


@on_stage
async def test_an_answer_to_an_earlier_attempt_does_not_count(stage: Stage) -> None:
    """The leader was deposed, and refuses the batch long after the next leader has got it."""
    cluster, produce = stage.cluster, stage.cluster.produce
    partition = cluster.create("t").partitions[0]

    def answered_late(
        broker: int, request: ProduceRequest
    ) -> tuple[list[ProduceAnswer] | None, bool]:
        cluster.stream_answers_take_s = 4 if broker == 1 else 8
        loop.call_later(0.1, lambda: setattr(cluster, "stream_answers_take_s", 0.001))
        return produce(broker, request)

    loop = asyncio.get_running_loop()
    async with stage.producer(linger_ms=0) as producer:
        await (await producer.send("t", b"first"))
        cluster.produce = answered_late  # type: ignore[method-assign]
        partition.faults.append(Fault(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        began_s = loop.time()
        delivery = await producer.send("t", b"v")
        await asyncio.sleep(0.2)
        cluster.move_leader(partition, 2)
        await delivery
    assert loop.time() - began_s > 8
    assert cluster.values() == [b"first", b"v"]
    assert partition.produced == 3, "one refused, and nothing twice"
