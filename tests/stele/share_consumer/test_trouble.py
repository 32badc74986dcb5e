"""The share consumer when brokers, coordinators, sessions and topics come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.records import AcknowledgeType, ShareRecord
from stele.share_consumer.consumer import ShareConsumer
from tests.stele.share_consumer.test_share_consumer import VALUES, twin_of, values_of
from tests.support.share_twin import ACCEPT, Fault, append
from tests.support.stele import Stage, on_stage

NAME = TopicPartition("t", 0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.05)


async def polled(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    found: list[ShareRecord] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.poll()
    return found


async def code_of_commit(consumer: ShareConsumer) -> ErrorCode:
    error = (await consumer.commit())[NAME]
    return ErrorCode.NONE if error is None else error.code


@on_stage
async def test_the_next_leader_gives_the_records_again(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        (first, *_) = await consumer.poll()
        stage.cluster.move_leader(stage.cluster.partition(), 2)
        consumer.acknowledge(first)
        assert await code_of_commit(consumer) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not consumer.holds(first)
        again = await polled(consumer, 3)
        assert values_of(again) == VALUES
        for record in again:
            consumer.acknowledge(record)
        assert await code_of_commit(consumer) is ErrorCode.NONE
    assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)


@on_stage
async def test_buffered_records_of_a_former_leader_are_not_returned_twice(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        assert values_of(await consumer.poll(1)) == [b"a"]
        await consumer.commit()
        stage.cluster.kill(1)
        twin.coordinator = 2
        stage.cluster.move_leader(stage.cluster.partition(), 2)
        await asyncio.sleep(1)
        assert values_of(await polled(consumer, 2)) == [b"b", b"c"]
        assert await code_of_commit(consumer) is ErrorCode.NONE
    assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)


@on_stage
async def test_the_death_of_a_leader_loses_only_acknowledgements(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    twin.coordinator = 3
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        (first, *_) = await consumer.poll()
        stage.cluster.kill(1)
        await until(lambda: not consumer.holds(first))
        consumer.acknowledge(first)
        assert await code_of_commit(consumer) is ErrorCode.INVALID_RECORD_STATE
        stage.cluster.move_leader(stage.cluster.partition(), 2)
        assert values_of(await polled(consumer, 3)) == VALUES


@on_stage
async def test_another_leader_is_asked_while_the_former_one_hangs(stage: Stage) -> None:
    twin = twin_of(stage)
    twin.coordinator = 3
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(timeout_ms=600)
        stage.cluster.frozen.add(1)
        stage.cluster.move_leader(stage.cluster.partition(), 2)
        append(stage.cluster.partition(), *VALUES)
        async with asyncio.timeout(45):
            assert values_of(await polled(consumer, 3)) == VALUES


@on_stage
@pytest.mark.parametrize("is_applied", [False, True])
async def test_an_acknowledgement_without_an_answer_is_unknown(
    stage: Stage, is_applied: bool
) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        (first, *_) = await consumer.poll()
        twin.faults.append(Fault(is_applied=is_applied, breaks=True))
        consumer.acknowledge(first)
        assert await code_of_commit(consumer) is ErrorCode.NETWORK_EXCEPTION
        again = await polled(consumer, 2 if is_applied else 3)
        assert values_of(again) == (VALUES[1:] if is_applied else VALUES)


@on_stage
async def test_a_decision_that_was_not_persisted_is_sent_again(stage: Stage) -> None:
    twin = twin_of(stage, b"a")
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        await consumer.poll()
        twin.faults += [Fault(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)] * 3
        assert await code_of_commit(consumer) is ErrorCode.NONE
    assert twin.outcomes() == {0: ACCEPT}


@on_stage
async def test_a_decision_is_not_sent_after_the_end_of_its_lock(stage: Stage) -> None:
    twin = twin_of(stage, b"a", lock_s=2.0)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        await consumer.poll()
        twin.faults += [Fault(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)] * 30
        assert await code_of_commit(consumer) is ErrorCode.INVALID_RECORD_STATE


@on_stage
@pytest.mark.parametrize(
    "code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH]
)
async def test_a_session_that_the_broker_does_not_know_is_opened_anew(
    stage: Stage, code: ErrorCode
) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        (first, *_) = await consumer.poll()
        twin.faults.append(Fault(refusal=code))
        consumer.acknowledge(first)
        assert await code_of_commit(consumer) is ErrorCode.SHARE_SESSION_NOT_FOUND
        assert values_of(await polled(consumer, 3)) == VALUES


@on_stage
async def test_a_full_broker_is_asked_again(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    twin.fetch_errors += [ErrorCode.SHARE_SESSION_LIMIT_REACHED] * 5
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        assert values_of(await polled(consumer, 3)) == VALUES
    assert any("SHARE_SESSION_LIMIT_REACHED" in each for each in stage.waits)


@on_stage
async def test_the_coordinator_moves(stage: Stage) -> None:
    twin = twin_of(stage)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(timeout_ms=100)
        twin.coordinator = 2
        await asyncio.sleep(5)
        stage.cluster.create("u")
        append(stage.cluster.partition("u"), b"of u")
        consumer.subscribe(["t", "u"])
        assert values_of(await polled(consumer, 1)) == [b"of u"]
    assert not twin.members


@on_stage
@pytest.mark.parametrize(
    "code",
    [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND],
)
async def test_a_member_that_was_removed_joins_again(stage: Stage, code: ErrorCode) -> None:
    twin = twin_of(stage, b"a")
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        await consumer.poll()
        twin.heartbeat_errors.append(code)
        await asyncio.sleep(3)
        append(stage.cluster.partition(), b"b")
        assert values_of(await polled(consumer, 1)) == [b"b"]
        assert await code_of_commit(consumer) is ErrorCode.NONE
    beats = [request for kind, _, request in twin.requests if kind == "heartbeat"]
    assert [each.member_epoch for each in beats].count(0) == 2
    assert twin.outcomes() == {0: ACCEPT, 1: ACCEPT}


@on_stage
async def test_a_group_that_refuses_the_member_is_reported(stage: Stage) -> None:
    twin = twin_of(stage, b"a")
    twin.heartbeat_errors.append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(ApiError, match="GROUP_AUTHORIZATION_FAILED: share group g"):
            await consumer.poll(timeout_ms=5000)


@on_stage
async def test_a_broker_that_refuses_the_member_is_reported(stage: Stage) -> None:
    twin = twin_of(stage, b"a")
    twin.fetch_errors.append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(ApiError, match="GROUP_AUTHORIZATION_FAILED: share group g"):
            await consumer.poll(timeout_ms=5000)


@pytest.mark.parametrize("errors", ["heartbeat_errors", "fetch_errors"])
@on_stage
async def test_a_member_without_the_right_hears_it_from_each_poll_and_goes_on_when_it_is_back(
    stage: Stage, *, errors: str
) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        (first, *_) = await polled(consumer, 3)
        getattr(twin, errors).extend([ErrorCode.GROUP_AUTHORIZATION_FAILED] * 3)
        for _ in range(3):
            with pytest.raises(ApiError) as failure:
                await consumer.poll(timeout_ms=20_000)
            assert failure.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
            assert consumer.assignment() == []
            assert not consumer.holds(first), "its session has ended"
        again = await polled(consumer, 3)
        assert values_of(again) == VALUES
        for record in again:
            consumer.acknowledge(record)
        await consumer.commit()
    assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)


@on_stage
async def test_a_member_without_the_right_hands_out_nothing_that_it_has_fetched(
    stage: Stage,
) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["t"])
        assert values_of(await consumer.poll(1)) == [b"a"]
        await consumer.commit()
        twin.heartbeat_errors.extend([ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2)
        await asyncio.sleep(15)
        for _ in range(2):
            with pytest.raises(ApiError, match="GROUP_AUTHORIZATION_FAILED"):
                await consumer.poll(timeout_ms=20_000)
        assert values_of(await polled(consumer, 2)) == [b"b", b"c"]
        await consumer.commit()
    assert twin.outcomes() == dict.fromkeys(range(3), ACCEPT)


@on_stage
async def test_a_member_whose_application_does_not_poll_leaves(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(max_poll_interval_ms=10_000) as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(1)
        await asyncio.sleep(8)
        assert twin.members
        await until(lambda: not twin.members)
        await asyncio.sleep(60)
        assert not twin.members
        assert any("max_poll_interval_ms=10000" in each for each in stage.waits)
        assert len(await polled(consumer, 2)) >= 2
        assert twin.members


@on_stage
async def test_a_topic_that_is_deleted_and_made_anew_is_read_from_its_beginning(
    stage: Stage,
) -> None:
    twin = twin_of(stage, *VALUES)
    async with stage.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        (old, *_) = await consumer.poll()
        del stage.cluster.topics["t"]
        stage.cluster.metadata_offset += 1
        consumer.acknowledge(old)
        assert await code_of_commit(consumer) is ErrorCode.UNKNOWN_TOPIC_ID
        assert await consumer.poll(timeout_ms=3000) == []
        stage.cluster.create("other")
        stage.cluster.create("t")
        append(stage.cluster.partition(), b"new")
        stage.cluster.metadata_offset += 1
        (new,) = await polled(consumer, 1)
        assert (new.value, new.offset) == (b"new", 0)
        consumer.acknowledge(new, AcknowledgeType.ACCEPT)
        assert await code_of_commit(consumer) is ErrorCode.NONE
    assert twin.outcomes() == {0: ACCEPT}


@on_stage
async def test_a_topic_that_comes_later_is_read(stage: Stage) -> None:
    twin = twin_of(stage)
    async with stage.share_consumer() as consumer:
        consumer.subscribe(["later"])
        assert await consumer.poll(timeout_ms=2000) == []
        stage.cluster.create("later")
        append(stage.cluster.partition("later"), b"a")
        assert values_of(await polled(consumer, 1)) == [b"a"]
    assert twin.members == {}


@on_stage
async def test_closing_does_not_wait_for_a_broker_that_hangs(stage: Stage) -> None:
    twin = twin_of(stage, *VALUES)
    consumer = stage.share_consumer()
    consumer.subscribe(["t"])
    await consumer.poll()
    stage.cluster.frozen.update({1, 2, 3})
    async with asyncio.timeout(20):
        await consumer.close()
    assert twin.outcomes() == {}
