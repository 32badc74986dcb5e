"""Produced records are checked before they are accepted, large batches in slices."""

from __future__ import annotations

import asyncio
import dataclasses
import struct
from collections.abc import Callable

import pytest

from broker.replication import produce
from broker.replication.deadlines import Deadline, DeadlineWheel
from broker.replication.slow_checks import Progress, SlowChecks
from broker.replication.types import (
    MAX_TIMESTAMP,
    OffsetQuery,
    ProduceEntry,
    ProduceResult,
)
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire import batch as wire
from stele.wire.compression import Compression
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replication import ends, with_topic
from tests.support.timing import until

LARGE = 20_000  # records: twenty slices


def resealed(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, wire.compute_crc(batch, 0, len(batch)))
    return batch


def sequenced(count: int, sequence: int) -> bytearray:
    return make_batch(count, producer=(7, 0, sequence))


@with_topic
async def test_unreadable_records_are_refused(cluster: ReplicaCluster) -> None:
    claims_gzip = make_batch(2)
    struct.pack_into(">h", claims_gzip, 21, Compression.GZIP)
    claims_more = make_batch(2)
    struct.pack_into(">i", claims_more, 23, 999)
    struct.pack_into(">i", claims_more, 57, 1000)
    for batch in (claims_gzip, claims_more):
        result = await cluster[1].produce(resealed(batch))
        assert result.error is ErrorCode.INVALID_RECORD
        assert result.message
    assert ends(cluster, 1) == [0]


@with_topic
async def test_a_producer_counts_when_it_begins_in_a_partition(cluster: ReplicaCluster) -> None:
    """Neither later, nor if its batch is refused."""
    new = []

    async def producing(batch: bytearray) -> ErrorCode:
        entry = ProduceEntry(P0, batch, on_new_producer=lambda: new.append(len(new)))
        produce = cluster[1].manager.produce
        results: list[ProduceResult] = await cluster[1].do(
            lambda done: produce.begin([entry], 1, 30_000, done)
        )
        return results[0].error

    assert await producing(sequenced(2, 0)) is ErrorCode.NONE
    assert new == [0]
    assert await producing(sequenced(2, 2)) is ErrorCode.NONE
    assert await producing(sequenced(2, 2)) is ErrorCode.NONE, "a duplicate"
    assert await producing(sequenced(2, 9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await producing(make_batch(2)) is ErrorCode.NONE, "no idempotent producer"
    assert new == [0]
    assert await producing(make_batch(1, producer=(8, 0, 0))) is ErrorCode.NONE
    assert new == [0, 1]
    assert cluster[1].manager.measures.counters().producer_ids == 2


@with_topic
async def test_a_full_partition_refuses_new_producers(cluster: ReplicaCluster) -> None:
    log = cluster[1].replica().log
    log.configure(dataclasses.replace(log.config, producer_ids_max=1))
    assert (await cluster[1].produce(sequenced(1, 0))).error is ErrorCode.NONE
    refused = await cluster[1].produce(make_batch(1, producer=(8, 0, 0)))
    assert refused.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert "producer.ids.max is 1" in refused.message
    assert (await cluster[1].produce(sequenced(1, 1))).error is ErrorCode.NONE
    counters = cluster[1].manager.measures.counters()
    assert (counters.refused_producers_total, counters.failed_produce_total) == (1, 1)


@with_topic
async def test_a_transactional_batch_is_refused(cluster: ReplicaCluster) -> None:
    batch = make_batch(is_transactional=True, producer=(1, 0, 0))
    result = await cluster[1].produce(batch)
    assert result.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert ends(cluster, 1) == [0]


@with_topic
async def test_a_record_s_time_is_bounded_whatever_the_header_claims(
    cluster: ReplicaCluster,
) -> None:
    builder = wire.BatchBuilder()
    builder.append(b"k", b"v", timestamp_ms=1_000)
    builder.append(b"k", b"v", timestamp_ms=1 << 50)
    batch = builder.build()
    struct.pack_into(">q", batch, 35, 1_000)
    result = await cluster[1].produce(resealed(batch))
    assert result.error is ErrorCode.INVALID_TIMESTAMP
    assert ends(cluster, 1) == [0]


@pytest.mark.parametrize("base_ms", [(1 << 63) - 1, (1 << 63) - 2])
@with_topic(message_timestamp_type="LogAppendTime")
async def test_a_record_s_time_has_64_bits_where_its_topic_takes_any(
    cluster: ReplicaCluster, base_ms: int
) -> None:
    """The header has no room for a later one."""
    batch = make_batch(2)  # a millisecond apart
    struct.pack_into(">q", batch, 27, base_ms)
    result = await cluster[1].produce(resealed(batch))
    has_room = base_ms < (1 << 63) - 1
    assert result.error is (ErrorCode.NONE if has_room else ErrorCode.INVALID_TIMESTAMP)
    assert ends(cluster, 1) == [2 * has_room]


@pytest.mark.parametrize(("count", "is_slow"), [(1_000, False), (1_001, True)])
@with_topic
async def test_a_batch_of_a_slice_is_appended_in_the_turn_in_which_it_comes(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, count: int, is_slow: bool
) -> None:
    """And no byte of a header is written anew that is right."""
    monkeypatch.setattr(produce, "stamp_max_timestamp", None)
    log = cluster[1].replica().log

    async def inside() -> None:
        entry = ProduceEntry(P0, make_batch(count))
        cluster[1].manager.produce.begin([entry], 0, 30_000, lambda results: None)
        assert log.end_offset == (0 if is_slow else count)

    await cluster[1].process.run(inside())
    await until(lambda: log.end_offset == count)


@pytest.mark.parametrize("count", [3, LARGE])
@pytest.mark.parametrize("claimed_ms", [-1, 0, 1 << 50])
@with_topic
async def test_the_newest_time_in_the_header_agrees_with_the_records(
    cluster: ReplicaCluster, count: int, claimed_ms: int
) -> None:
    """Retention would delete records of this moment, and look-ups by time would miss them."""

    now_ms = cluster[1].process.world.clock.time_ms()
    builder = wire.BatchBuilder()
    for number in range(count):
        builder.append(b"k", b"v", timestamp_ms=now_ms - abs(number - 1))
    batch = builder.build()
    struct.pack_into(">q", batch, 35, claimed_ms)
    result = await cluster[1].produce(resealed(batch))
    assert (result.error, result.base_offset) == (ErrorCode.NONE, 0)
    appended = cluster[1].replica().log.read(0, 1 << 20).data
    header = wire.read_header(appended)
    assert header.max_timestamp_ms == now_ms
    assert wire.check_crc(appended, 0, header)
    assert [each.timestamp_ms for each in wire.decode(appended)][:2] == [now_ms - 1, now_ms]
    queries = [OffsetQuery(P0, now_ms, -1), OffsetQuery(P0, MAX_TIMESTAMP, -1)]
    manager = cluster[1].manager
    found = await cluster[1].process.run(
        manager.offsets.list_offsets(queries, read_committed=False)
    )
    assert [each.offset for each in found] == [1, 1]


@with_topic((1, 2, 3), (1, 2, 3), cleanup_policy="compact")
async def test_the_records_that_a_compacted_topic_rejects_are_named(
    cluster: ReplicaCluster,
) -> None:
    def batch(*keys: bytes | None) -> bytearray:
        builder = wire.BatchBuilder()
        for key in keys:
            builder.append(key, b"v", timestamp_ms=10**12)
        return builder.build()

    result = await cluster[1].produce(batch(b"a", None, b"c", None))
    assert result.error is ErrorCode.INVALID_RECORD
    assert [each.number for each in result.record_errors] == [1, 3]
    assert "2 records are rejected. Record 1: it has no key" in result.message
    node, other = cluster[1], P0._replace(partition=1)
    entries = [ProduceEntry(each, batch(*[None] * 200)) for each in [P0, other] * 7]
    results: list[ProduceResult] = await node.do(
        lambda done: node.manager.produce.begin(entries, -1, 30_000, done)
    )
    named = [len(each.record_errors) for each in results]
    assert named == [100] * 10 + [0] * 4
    assert (await cluster[1].produce(batch(b"a"))).record_errors == ()


@with_topic
async def test_what_comes_behind_a_large_batch_stays_behind_it(cluster: ReplicaCluster) -> None:
    """Otherwise a producer's sequence numbers would be out of order."""

    node = cluster[1]
    batches = [sequenced(LARGE, 0), sequenced(2, LARGE), sequenced(1, LARGE + 2)]
    results = await asyncio.gather(*(node.produce(batch) for batch in batches))
    assert [result.error for result in results] == [ErrorCode.NONE] * 3
    assert [result.base_offset for result in results] == [0, LARGE, LARGE + 2]
    assert (await node.produce(sequenced(1, LARGE + 3))).base_offset == LARGE + 3


@with_topic
async def test_a_large_batch_that_is_unsound_at_its_end_is_refused_alone(
    cluster: ReplicaCluster,
) -> None:
    bad = make_batch(LARGE)
    bad[-1] = 2  # a header is claimed, and there is none
    refused, taken = await asyncio.gather(
        cluster[1].produce(resealed(bad), acks=1), cluster[1].produce(make_batch(2), acks=1)
    )
    assert refused.error is ErrorCode.INVALID_RECORD
    assert (taken.error, taken.base_offset) == (ErrorCode.NONE, 0)


@with_topic
async def test_a_large_batch_is_not_appended_after_its_request_timed_out(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Virtual time stands still during the check, so the test moves the deadline itself."""
    timeout_ms = 31_234
    deadlines: dict[float, Callable[[], None]] = {}
    add = DeadlineWheel.add

    def noted(wheel: DeadlineWheel, delay_ms: float, callback: Callable[[], None]) -> Deadline:
        deadlines[delay_ms] = callback
        return add(wheel, delay_ms, callback)

    monkeypatch.setattr(DeadlineWheel, "add", noted)

    node = cluster[1]
    answered: list[ProduceResult] = []

    def time_out() -> None:
        entries = [ProduceEntry(P0, make_batch(LARGE))]
        node.manager.produce.begin(entries, -1, timeout_ms, answered.extend)
        assert not answered
        deadlines[timeout_ms]()
        assert answered[0].error is ErrorCode.REQUEST_TIMED_OUT

    node.process.loop.call_soon(time_out)
    await until(lambda: bool(answered))
    assert (await node.produce()).base_offset == 0


@pytest.mark.parametrize(
    ("depose_by", "error"),
    [
        (lambda cluster: cluster.change(leader=2), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda cluster: cluster.delete_topic(), ErrorCode.UNKNOWN_TOPIC_ID),
    ],
    ids=["another leads", "the topic is deleted"],
)
@with_topic
async def test_a_leader_deposed_during_the_check_appends_nothing(
    cluster: ReplicaCluster, depose_by: Callable[[ReplicaCluster], None], error: ErrorCode
) -> None:
    node = cluster[1]
    log = node.replica().log
    answered: list[ProduceResult] = []

    def depose() -> None:
        depose_by(cluster)  # acted on before the next slice of the check
        node.manager.produce.begin(
            [ProduceEntry(P0, make_batch(LARGE))], -1, 30_000, answered.extend
        )
        assert not answered
        assert node.replica().machine.is_leader

    node.process.loop.call_soon(depose)
    await until(lambda: bool(answered))
    assert answered[0].error is error
    assert log.end_offset == 0


@with_topic((1, 2, 3), (1, 2, 3))
async def test_a_request_answers_when_its_large_and_its_small_batches_are_done(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    other = P0._replace(partition=1)
    entries = [ProduceEntry(P0, make_batch(LARGE)), ProduceEntry(other, make_batch(3))]
    results: list[ProduceResult] = await node.do(
        lambda done: node.manager.produce.begin(entries, -1, 30_000, done)
    )
    assert [result.error for result in results] == [ErrorCode.NONE] * 2
    replicas = [node.replica(), node.replica(other)]
    assert [replica.log.end_offset for replica in replicas] == [LARGE, 3]


async def test_partitions_take_turns() -> None:
    turns: list[str] = []
    left = {"a": 3, "b": 2, "c": 1}

    def advance(job: str) -> Progress:
        turns.append(job)
        left[job] -= 1
        return Progress.MORE if left[job] else Progress.DONE

    checks: SlowChecks[str] = SlowChecks(advance)
    one, two = PartitionId(bytes(16), 1), PartitionId(bytes(16), 2)
    checks.add(one, "a")
    checks.add(one, "c")
    checks.add(two, "b")
    for _ in range(6):
        assert checks.is_busy(one)
        await asyncio.sleep(0)
    assert not checks.is_busy(one)
    assert not checks.is_busy(two)
    assert turns == ["a", "b", "a", "b", "a", "c"]


async def test_a_partition_whose_first_job_waits_holds_up_no_other() -> None:
    turns: list[str] = []
    waits = {"a"}

    def advance(job: str) -> Progress:
        turns.append(job)
        return Progress.WAITING if job in waits else Progress.DONE

    checks: SlowChecks[str] = SlowChecks(advance)
    one, two = PartitionId(bytes(16), 1), PartitionId(bytes(16), 2)
    checks.add(one, "a")
    await asyncio.sleep(0)
    checks.add(one, "b")
    checks.add(two, "c")
    for _ in range(3):
        await asyncio.sleep(0)
    assert turns == ["a", "c"]
    assert checks.is_busy(one)
    assert not checks.is_busy(two)
    waits.clear()
    checks.resume(one)
    for _ in range(2):
        await asyncio.sleep(0)
    assert turns == ["a", "c", "a", "b"]
    assert not checks.is_busy(one)


@pytest.mark.parametrize("acks", [0, 1, -1])
@with_topic
async def test_large_batches_are_answered_whatever_acks_say(
    cluster: ReplicaCluster, acks: int
) -> None:
    result = await cluster[1].produce(make_batch(LARGE), acks=acks)
    assert result.error is ErrorCode.NONE
    assert cluster[1].replica().log.end_offset == LARGE
