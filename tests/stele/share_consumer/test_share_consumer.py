"""The share consumer with brokers in memory: polls, acknowledgements, locks, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from stele.errors import ApiError, ClosedError, ConfigError, ErrorCode
from stele.ids import TopicPartition
from stele.records import AcknowledgeType, ShareRecord
from tests.support.share_twin import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    ShareTwin,
    append,
    append_with_gap,
)
from tests.support.stele import Stage, on_stage

VALUES = [b"a", b"b", b"c"]


def twin_of(stage: Stage, *values: bytes, partitions: int = 1, lock_s: float = 30.0) -> ShareTwin:
    twin = ShareTwin(stage.cluster, lock_s=lock_s)
    topic = stage.cluster.create("t", partitions)
    if values:
        append(topic.partitions[0], *values)
    return twin


def values_of(records: Sequence[ShareRecord]) -> list[bytes | None]:
    return [each.value for each in records]


@on_stage
async def test_the_next_poll_accepts_what_was_returned(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        records = await consumer.poll()
        assert values_of(records) == VALUES
        assert [each.delivery_count for each in records] == [1, 1, 1]
        assert twin.outcomes() == {}
        assert await consumer.poll(timeout_ms=100) == []
    assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)


@on_stage
async def test_a_commit_accepts_what_was_returned_and_waits_for_the_answer(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        await consumer.poll()
        assert await consumer.commit() == {TopicPartition("t", 0): None}
        assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)
        assert await consumer.commit() == {}


@on_stage
async def test_closing_releases_the_last_poll(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        await consumer.poll()
    assert twin.outcomes() == {}
    assert [twin.entry(offset).count for offset in range(3)] == [1, 1, 1]
    assert all(session.is_over for session in twin.sessions.values())
    assert not twin.members
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        records = await consumer.poll()
        assert [each.delivery_count for each in records] == [2, 2, 2]


@on_stage
async def test_records_that_no_poll_has_returned_do_not_count_as_delivered(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        assert values_of(await consumer.poll(1)) == [b"a"]
    assert [twin.entry(offset).count for offset in range(3)] == [1, 0, 0]


@on_stage
async def test_the_application_accepts_releases_and_rejects(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        first, second, third = await consumer.poll()
        consumer.acknowledge(first)
        consumer.acknowledge(second, AcknowledgeType.REJECT)
        consumer.acknowledge(third, AcknowledgeType.RELEASE)
        assert await consumer.commit() == {TopicPartition("t", 0): None}
        assert twin.outcomes() == {0: ACCEPT, 1: REJECT}
        (again,) = await consumer.poll()
        assert (again.value, again.delivery_count) == (b"c", 2)
        assert not consumer.holds(first)
        assert consumer.holds(again)


@on_stage
async def test_processing_accepts_or_releases(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    failed = False
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        async for record in consumer:
            try:
                async with consumer.processing(record):
                    if record.value == b"b" and not failed:
                        failed = True
                        raise ValueError("not now")
            except ValueError:
                continue
            await consumer.commit()
            if len(twin.outcomes()) == 3:
                break
    assert failed
    assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)
    assert twin.acknowledgements(RELEASE) == 1


@on_stage
async def test_a_decision_within_processing_stays(stage: Stage) -> None:
    twin = twin_of(stage, b"a")
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        (record,) = await consumer.poll()
        async with consumer.processing(record):
            consumer.acknowledge(record, AcknowledgeType.REJECT)
        assert await consumer.commit() == {TopicPartition("t", 0): None}
    assert twin.outcomes() == {0: REJECT}


@on_stage
async def test_an_implicit_poll_in_an_iteration_accepts_the_record_before(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        found = []
        async for record in consumer:
            found.append(record.value)
            if len(found) == 3:
                break
    assert found == VALUES
    assert twin.outcomes() == {0: ACCEPT, 1: ACCEPT}


@on_stage
async def test_locks_are_renewed_while_the_application_works(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES, lock_s=2.0)
    options = {"share_acknowledgement_mode": "explicit", "max_poll_interval_ms": 30_000}
    async with stage.share_consumer(**options) as consumer:
        consumer.subscribe(["t"])
        first, second, _ = await consumer.poll(2) + await consumer.poll(1)
        await asyncio.sleep(10)
        assert consumer.holds(first)
        consumer.acknowledge(first)
        assert await consumer.commit() == {TopicPartition("t", 0): None}
        assert twin.entry(0).outcome == ACCEPT
        assert twin.acknowledgements(RENEW) >= 9
        await asyncio.sleep(30)
        assert not consumer.holds(second), "it is renewed for max_poll_interval_ms only"
        consumer.acknowledge(second)
        (error,) = (await consumer.commit()).values()
        assert error is not None
        assert error.code is ErrorCode.INVALID_RECORD_STATE


@on_stage
async def test_without_renewals_a_lock_ends(stage: Stage) -> None:
    """Brokers of Kafka 4.1 know none."""
    twin = twin_of(stage, b"a", lock_s=2.0)
    from stele.wire.kafka.messages import share_acknowledge, share_fetch

    stage.cluster.kafka_versions = {share_fetch.API.key: 1, share_acknowledge.API.key: 1}
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        (record,) = await consumer.poll()
        await asyncio.sleep(3)
        assert not consumer.holds(record)
        assert twin.acknowledgements(RENEW) == 0
        (again,) = await consumer.poll()
        assert again.delivery_count == 2


@on_stage
async def test_a_record_whose_lock_has_ended_takes_no_others_along(stage: Stage) -> None:
    twin = twin_of(stage, b"a", lock_s=2.0)
    options = {"share_acknowledgement_mode": "explicit", "max_poll_interval_ms": 1}
    async with stage.share_consumer(**options) as consumer:
        consumer.subscribe(["t"])
        (first,) = await consumer.poll()
        await asyncio.sleep(1.9)
        append(stage.cluster.partition(), b"b")
        (second,) = await consumer.poll()
        await asyncio.sleep(0.2)
        consumer.acknowledge(first)
        consumer.acknowledge(second)
        results = await consumer.commit()
        assert results[TopicPartition("t", 0)] is not None
    assert twin.outcomes() == {1: ACCEPT}


@on_stage
async def test_offsets_without_a_record_are_left_behind(stage: Stage) -> None:
    twin = twin_of(stage)
    append_with_gap(stage.cluster.partition(), b"a", None, b"c")
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        assert values_of(await consumer.poll()) == [b"a", b"c"]
        await consumer.commit()
    assert twin.outcomes() == {0: ACCEPT, 1: REJECT, 2: ACCEPT}


@on_stage
async def test_results_come_by_partition(stage: Stage) -> None:
    twin = twin_of(stage, b"a", b"b", partitions=2)
    append(stage.cluster.partition("t", 1), b"c")
    told: list[tuple[TopicPartition, list[int], ErrorCode]] = []

    def on_acknowledged(
        name: TopicPartition, offsets: Sequence[int], error: ApiError | None
    ) -> None:
        told.append((name, list(offsets), error.code if error else ErrorCode.NONE))

    async with stage.share_consumer(on_acknowledged=on_acknowledged) as consumer:
        consumer.subscribe(["t"])
        found: list[ShareRecord] = []
        while len(found) < 3:
            found += await consumer.poll()
        await consumer.commit()
        append(stage.cluster.partition(), b"d")
        await consumer.poll()
        from tests.support.share_twin import Fault

        twin.faults.append(Fault(error=ErrorCode.INVALID_RECORD_STATE))
        results = await consumer.commit()
    accepted = {(name, o) for name, offsets, code in told if not code for o in offsets}
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    assert accepted == {(first, 0), (first, 1), (second, 0)}
    assert told[-1] == (first, [2], ErrorCode.INVALID_RECORD_STATE)
    error = results[first]
    assert error is not None
    assert error.code is ErrorCode.INVALID_RECORD_STATE


@on_stage
async def test_members_share_the_records_of_a_partition(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    options = {"share_acquire_mode": "record_limit", "max_poll_records": 1}
    async with stage.share_consumer(**options) as one, stage.share_consumer(**options) as other:
        one.subscribe(["t"])
        other.subscribe(["t"])
        (first,) = await one.poll()
        (second,) = await other.poll()
        assert [first.value, second.value] == [b"a", b"b"]
        assert twin.requests[-1][2].share_acquire_mode == 1


@on_stage
async def test_two_tasks_may_poll(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])

        async def work() -> None:
            while len(twin.outcomes()) < 3:
                for record in await consumer.poll(1, timeout_ms=100):
                    async with consumer.processing(record):
                        await asyncio.sleep(1)

        await asyncio.gather(work(), work())
    assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)


@on_stage
async def test_a_poll_without_a_wait_brings_records_to_a_later_one(stage: Stage) -> None:
    twin_of(stage, *VALUES)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        for _ in range(200):
            records = await consumer.poll(timeout_ms=0)
            if records:
                break
            await asyncio.sleep(0.01)
        assert values_of(records) == VALUES


@on_stage
async def test_nothing_is_fetched_between_polls(stage: Stage) -> None:
    """Records that wait in a consumer are kept from other members."""
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        await consumer.poll()
        append(stage.cluster.partition(), b"late")
        await asyncio.sleep(5)
        assert twin.entry(3).holder is None


@on_stage
async def test_wrong_calls_are_refused(stage: Stage) -> None:
    twin_of(stage, *VALUES)
    with pytest.raises(ConfigError, match="a share consumer needs a group"):
        stage.share_consumer(group_id="")
    consumer = stage.share_consumer()
    with pytest.raises(ConfigError, match=r"call subscribe"):
        await consumer.poll()
    with pytest.raises(ConfigError, match="must be a list of names"):
        consumer.subscribe("t")
    consumer.subscribe(["t"])
    with pytest.raises(ConfigError, match="max_records=0 must be at least 1"):
        await consumer.poll(0)
    (record, *_) = await consumer.poll()
    with pytest.raises(ConfigError, match="share_acknowledgement_mode='explicit'"):
        consumer.acknowledge(record)
    with pytest.raises(ConfigError, match="share_acknowledgement_mode='explicit'"):
        async with consumer.processing(record):
            pass
    await consumer.close()
    with pytest.raises(ClosedError):
        await consumer.poll()


@on_stage
async def test_an_unreadable_batch_is_released_and_reported(stage: Stage) -> None:
    twin = twin_of(stage, b"a")
    append(stage.cluster.partition(), b"b")
    stage.cluster.partition().batches[0][-1] ^= 1
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        assert values_of(await consumer.poll()) == [b"b"]
        with pytest.raises(ApiError, match="records 0 to 0 of t-0 cannot be read"):
            await consumer.poll(timeout_ms=100)
        await consumer.commit()
        assert twin.acknowledgements(RELEASE) >= 1


@on_stage
async def test_unsubscribing_releases_and_leaves(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        await consumer.poll()
        await consumer.unsubscribe()
        assert not twin.members
        assert twin.outcomes() == {}
        consumer.subscribe(["t"])
        records = await consumer.poll()
        assert [each.delivery_count for each in records] == [2, 2, 2]
        assert consumer.assignment() == [TopicPartition("t", 0)]
        assert consumer.subscription() == ["t"]


@on_stage
async def test_a_group_is_left_although_the_call_was_cancelled(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        first, *_ = await consumer.poll()
        consumer.acknowledge(first)
        leaving = asyncio.ensure_future(consumer.unsubscribe())
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await asyncio.sleep(20)  # longer than leaving may take
        assert not twin.members
        assert all(session.is_over for session in twin.sessions.values())
        assert twin.outcomes() == {0: ACCEPT}


@on_stage
async def test_a_poll_waits_until_the_group_is_left(stage: Stage) -> None:
    twin_of(stage, *VALUES)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        await consumer.poll()
        leaving = asyncio.ensure_future(consumer.unsubscribe())
        await asyncio.sleep(0)
        leaving.cancel()
        consumer.subscribe(["t"])
        records = await consumer.poll(timeout_ms=20_000)
        assert [each.delivery_count for each in records] == [2, 2, 2]
        assert consumer.assignment() == [TopicPartition("t", 0)]
