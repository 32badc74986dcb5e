"""What a consumer makes of its coordinator's answers, on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stele.config import ConsumerConfig, GroupProtocol
from stele.consumer.group.coordinator import HEARTBEAT_S, consumer_heartbeat_s, heartbeat_s
from stele.errors import ApiError, ErrorCode, FencedInstanceError, SteleError
from stele.records import OffsetAndMetadata
from stele.wire.kafka.messages import (
    consumer_group_heartbeat,
    find_coordinator,
    heartbeat,
    join_group,
    offset_commit,
    offset_fetch,
    sync_group,
)
from stele.wire.kafka.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.support.stele import LOST, Stage, on_stage


def coordinating(stage: Stage) -> None:
    """Broker 1 coordinates all groups."""

    def find(broker: int, request: find_coordinator.FindCoordinatorRequest) -> Any:
        return find_coordinator.FindCoordinatorResponse(
            coordinators=[
                find_coordinator.Coordinator(key, 1, "127.0.0.1", 9001)
                for key in request.coordinator_keys
            ]
        )

    stage.cluster.answer(find_coordinator.API, find)


def group(*told: OffsetFetchResponsePartitions) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup("g", [OffsetFetchResponseTopics("t", partitions=[*told])])


def answering(stage: Stage, *groups: OffsetFetchResponseGroup) -> list[Any]:
    """Give these answers about committed offsets. Returns the requests so far."""
    requests: list[Any] = []

    def fetch(broker: int, request: offset_fetch.OffsetFetchRequest) -> Any:
        requests.append(request)
        return OffsetFetchResponse(groups=[groups[len(requests) - 1]])

    coordinating(stage)
    stage.cluster.answer(offset_fetch.API, fetch)
    return requests


@on_stage
async def test_an_offset_that_a_transaction_holds_back_is_asked_for_again(stage: Stage) -> None:
    unstable = OffsetFetchResponsePartitions(0, -1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    there = OffsetFetchResponsePartitions(0, 5, 2, metadata=None)
    requests = answering(stage, group(unstable), group(there))
    async with stage.consumer(group_id="g") as consumer:
        found = await consumer.committed([("t", 0)])
    assert found == {("t", 0): OffsetAndMetadata(5, 2, "")}
    assert len(requests) == 2


@on_stage
async def test_offsets_are_asked_for_in_the_topic_that_is_read(stage: Stage) -> None:
    """A name that the consumer does not read stands for whichever topic has it."""
    topic_id = stage.cluster.create("t").topic_id
    stage.cluster.create("u")
    requests = answering(stage, *[OffsetFetchResponseGroup("g", [])] * 9)
    async with stage.consumer(group_id="g", enable_auto_commit=False) as consumer:
        assert await consumer.partitions_for("t") == await consumer.partitions_for("u") == [0]
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        await consumer.poll(timeout_ms=100)
        await consumer.committed([("t", 0), ("u", 0)])
    asked = [topic for each in requests for topic in each.groups[0].topics]
    assert [(each.name or each.topic_id) for each in asked] == [topic_id, "u"]


@on_stage
async def test_a_start_is_looked_up_until_the_coordinator_answers(stage: Stage) -> None:
    stage.cluster.create("t").partitions[0].end_offset = 9
    asked = 0

    def fetch(broker: int, request: offset_fetch.OffsetFetchRequest) -> Any:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise LOST
        assert request.groups[0].topics is not None
        (topic,) = request.groups[0].topics
        there = OffsetFetchResponsePartitions(0, 5)
        told = OffsetFetchResponseTopics(topic.name, topic.topic_id, [there])
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", [told])])

    coordinating(stage)
    stage.cluster.answer(offset_fetch.API, fetch)
    async with stage.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([("t", 0)])
        await consumer.poll(timeout_ms=10_000)
        assert consumer.known_position("t", 0) == 5


@pytest.mark.parametrize(
    ("of_partition", "of_all", "text"),
    [("ask Eve", None, "ask Eve"), (None, "ask Bob", "ask Bob"), (None, None, "may not ")],
)
@on_stage
async def test_a_refused_commit_says_why(
    stage: Stage, of_partition: str | None, of_all: str | None, text: str
) -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def commit(broker: int, request: offset_commit.OffsetCommitRequest) -> Any:
        (asked,) = request.topics
        part = offset_commit.OffsetCommitResponsePartition(0, code, of_partition)
        topic = offset_commit.OffsetCommitResponseTopic(asked.topic_id, asked.name, [part])
        return offset_commit.OffsetCommitResponse(topics=[topic], error_message=of_all)

    coordinating(stage)
    stage.cluster.answer(offset_commit.API, commit)
    async with stage.consumer(group_id="g", enable_auto_commit=False) as consumer:
        with pytest.raises(ApiError, match=f"the offset of t-0 was not committed: .*{text}"):
            await consumer.commit({("t", 0): 5})


@pytest.mark.parametrize(
    ("message", "text"), [("ask Eve", "ask Eve"), (None, "may not do this with the group")]
)
@on_stage
async def test_a_refusal_of_all_offsets_says_why(
    stage: Stage, message: str | None, text: str
) -> None:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    answering(stage, OffsetFetchResponseGroup("g", error_code=code, error_message=message))
    async with stage.consumer(group_id="g") as consumer:
        with pytest.raises(ApiError, match=text) as refused:
            await consumer.committed([("t", 0)])
    assert refused.value.code is code


@on_stage
async def test_the_error_of_a_replaced_static_member_names_its_instance_id(
    stage: Stage,
) -> None:
    fenced = ErrorCode.FENCED_INSTANCE_ID

    def beat(broker: int, request: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest) -> Any:
        return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(error_code=fenced)

    coordinating(stage)
    stage.cluster.answer(consumer_group_heartbeat.API, beat)
    options = {"group_protocol": "consumer", "group_instance_id": "one"}
    async with stage.consumer(group_id="g", **options) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(FencedInstanceError, match="group_instance_id='one'"):
            await consumer.poll(timeout_ms=5000)


@on_stage
async def test_a_seek_outlasts_the_answer_about_the_committed_offset(stage: Stage) -> None:
    stage.cluster.create("t").partitions[0].end_offset = 9
    consumer = stage.consumer(group_id="g", enable_auto_commit=False)

    def fetch(broker: int, request: offset_fetch.OffsetFetchRequest) -> Any:
        consumer.seek("t", 0, 7)
        assert request.groups[0].topics is not None
        (topic,) = request.groups[0].topics
        there = OffsetFetchResponsePartitions(0, 5)
        told = OffsetFetchResponseTopics(topic.name, topic.topic_id, [there])
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", [told])])

    coordinating(stage)
    stage.cluster.answer(offset_fetch.API, fetch)
    async with consumer:
        consumer.assign([("t", 0)])
        await consumer.poll(timeout_ms=1000)
        assert consumer.known_position("t", 0) == 7


@on_stage
async def test_a_refused_start_stops_the_partition_until_a_seek(stage: Stage) -> None:
    stage.cluster.create("t").partitions[0].end_offset = 9
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    answering(stage, OffsetFetchResponseGroup("g", error_code=code))
    async with stage.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([("t", 0)])
        with pytest.raises(ApiError) as refused:
            await consumer.poll(timeout_ms=1000)
        assert refused.value.code is code
        consumer.seek("t", 0, 7)
        assert await consumer.poll(timeout_ms=1000) == []


@on_stage
async def test_a_seek_outlasts_a_refusal_of_the_committed_offset(stage: Stage) -> None:
    stage.cluster.create("t").partitions[0].end_offset = 9
    consumer = stage.consumer(group_id="g", enable_auto_commit=False)

    def fetch(broker: int, request: offset_fetch.OffsetFetchRequest) -> Any:
        consumer.seek("t", 0, 7)
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", error_code=code)])

    coordinating(stage)
    stage.cluster.answer(offset_fetch.API, fetch)
    async with consumer:
        consumer.assign([("t", 0)])
        assert await consumer.poll(timeout_ms=1000) == []
        assert consumer.known_position("t", 0) == 7


@on_stage
async def test_a_coordinator_that_loads_stops_no_partition(stage: Stage) -> None:
    stage.cluster.create("t").partitions[0].end_offset = 9
    loads = OffsetFetchResponseGroup("g", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    topic_id = stage.cluster.topics["t"].topic_id
    there = OffsetFetchResponseTopics("t", topic_id, [OffsetFetchResponsePartitions(0, 5)])
    answering(stage, loads, loads, OffsetFetchResponseGroup("g", [there]))
    async with stage.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([("t", 0)])
        await consumer.poll(timeout_ms=30)
        assert "committed offset is looked up; last: " in str(consumer.why())
        assert "COORDINATOR_LOAD_IN_PROGRESS" in str(consumer.why())
        await consumer.poll(timeout_ms=10_000)
        assert consumer.known_position("t", 0) == 5


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@on_stage
async def test_who_is_refused_as_a_member_may_name_its_partitions(
    stage: Stage, protocol: GroupProtocol
) -> None:
    stage.cluster.create("t")
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    found: list[bool] = []

    def find(broker: int, request: find_coordinator.FindCoordinatorRequest) -> Any:
        found.append(True)
        refused = find_coordinator.Coordinator(request.coordinator_keys[0], error_code=code)
        return find_coordinator.FindCoordinatorResponse(coordinators=[refused])

    stage.cluster.answer(find_coordinator.API, find)
    options = {"group_id": "g", "group_protocol": protocol, "enable_auto_commit": False}
    async with stage.consumer(**options) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(ApiError):
            await consumer.poll(timeout_ms=5000)
        await consumer.unsubscribe()
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        found.clear()
        assert await consumer.poll(timeout_ms=5000) == []
        assert not found, "it asks for no coordinator"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@on_stage
async def test_who_may_not_use_the_group_hears_it_from_the_first_poll(
    stage: Stage, protocol: GroupProtocol
) -> None:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED

    def find(broker: int, request: find_coordinator.FindCoordinatorRequest) -> Any:
        refused = find_coordinator.Coordinator(request.coordinator_keys[0], error_code=code)
        return find_coordinator.FindCoordinatorResponse(coordinators=[refused])

    stage.cluster.answer(find_coordinator.API, find)
    async with stage.consumer(group_id="g", group_protocol=protocol) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(ApiError) as failure:
            await consumer.poll(timeout_ms=5000)
    assert failure.value.code is code


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    ("message", "text"), [("ask Eve", "ask Eve"), (None, "may not do this with the group")]
)
@on_stage
async def test_a_member_that_is_refused_says_why(
    stage: Stage, protocol: GroupProtocol, message: str | None, text: str
) -> None:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED

    def beat(broker: int, request: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest) -> Any:
        return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
            error_code=code, error_message=message
        )

    def join(broker: int, request: join_group.JoinGroupRequest) -> Any:
        return join_group.JoinGroupResponse(error_code=code, error_message=message)

    coordinating(stage)
    stage.cluster.answer(consumer_group_heartbeat.API, beat)
    stage.cluster.answer(join_group.API, join)
    async with stage.consumer(group_id="g", group_protocol=protocol) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(ApiError, match=text):
            await consumer.poll(timeout_ms=5000)


@on_stage
async def test_a_member_joins_with_its_new_id_at_once(stage: Stage) -> None:
    """A coordinator that gives the id first has refused nothing."""
    joins: list[tuple[float, str]] = []
    loop = asyncio.get_running_loop()

    def join(broker: int, request: join_group.JoinGroupRequest) -> Any:
        joins.append((loop.time(), request.member_id))
        if not request.member_id:
            code = ErrorCode.MEMBER_ID_REQUIRED
            return join_group.JoinGroupResponse(error_code=code, member_id="me")
        return join_group.JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    coordinating(stage)
    stage.cluster.answer(join_group.API, join)
    options = {"retry_backoff_ms": 3000, "retry_backoff_max_ms": 3000}
    async with stage.consumer(group_id="g", **options) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(ApiError):
            await consumer.poll(timeout_ms=20_000)
    (first_s, nobody), (then_s, me) = joins
    assert (nobody, me) == ("", "me")
    assert then_s - first_s < 1


@on_stage
async def test_a_commit_of_a_replaced_static_member_says_that_it_was_replaced(
    stage: Stage,
) -> None:
    def commit(broker: int, request: offset_commit.OffsetCommitRequest) -> Any:
        (asked,) = request.topics
        fenced = ErrorCode.FENCED_INSTANCE_ID
        part = offset_commit.OffsetCommitResponsePartition(0, fenced)
        topic = offset_commit.OffsetCommitResponseTopic(asked.topic_id, asked.name, [part])
        return offset_commit.OffsetCommitResponse(topics=[topic])

    coordinating(stage)
    stage.cluster.answer(offset_commit.API, commit)
    options = {"group_instance_id": "one", "enable_auto_commit": False}
    async with stage.consumer(group_id="g", **options) as consumer:
        with pytest.raises(FencedInstanceError, match="group_instance_id='one'"):
            await consumer.commit({("t", 0): 5})


def test_a_heartbeat_waits_for_its_answer_no_longer_than_any_request() -> None:
    assert consumer_heartbeat_s(ConsumerConfig(request_timeout_ms=2_000)) == 2
    assert consumer_heartbeat_s(ConsumerConfig(request_timeout_ms=60_000)) == HEARTBEAT_S


def test_another_heartbeat_fits_into_the_session_when_one_has_no_answer() -> None:
    assert heartbeat_s(ConsumerConfig(session_timeout_ms=30_000)) == 10
    assert heartbeat_s(ConsumerConfig(session_timeout_ms=30_000, request_timeout_ms=2_000)) == 2


@pytest.mark.parametrize("rack", ["r1", ""])
@on_stage
async def test_a_member_says_in_which_rack_it_is(stage: Stage, rack: str) -> None:
    """The coordinator may give it partitions with a replica there."""
    told: list[str | None] = []

    def beat(broker: int, request: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest) -> Any:
        told.append(request.rack_id)
        return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
            member_epoch=1, heartbeat_interval_ms=1_000
        )

    coordinating(stage)
    stage.cluster.answer(consumer_group_heartbeat.API, beat)
    async with stage.consumer(
        group_id="g", group_protocol="consumer", client_rack=rack
    ) as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(timeout_ms=5000)
    assert told[0] == (rack or None)
    assert set(told[1:]) == {None}, "it has not changed"


@on_stage
async def test_a_coordinator_that_does_not_know_the_topic_yet_is_asked_again_to_commit(
    stage: Stage,
) -> None:
    """Its metadata lag. As far as the client knows, nobody has deleted the topic."""
    stage.cluster.create("t")
    asked = 0

    def commit(broker: int, request: offset_commit.OffsetCommitRequest) -> Any:
        nonlocal asked
        asked += 1
        (topic,) = request.topics
        code = ErrorCode.UNKNOWN_TOPIC_ID if asked < 3 else ErrorCode.NONE
        part = offset_commit.OffsetCommitResponsePartition(0, code)
        told = offset_commit.OffsetCommitResponseTopic(topic.topic_id, topic.name, [part])
        return offset_commit.OffsetCommitResponse(topics=[told])

    coordinating(stage)
    stage.cluster.answer(offset_commit.API, commit)
    async with stage.consumer(group_id="g", enable_auto_commit=False) as consumer:
        await consumer.partitions_for("t")
        topic_id = consumer.topic_id("t")
        await consumer.commit({("t", 0): OffsetAndMetadata(5, topic_id=topic_id)})
    assert asked == 3


@on_stage
async def test_who_has_nothing_to_commit_does_not_wait_for_commits_when_it_closes(
    stage: Stage,
) -> None:
    stage.cluster.create("t")
    coordinating(stage)

    def commit(broker: int, request: offset_commit.OffsetCommitRequest) -> Any:
        raise LOST

    stage.cluster.answer(offset_commit.API, commit)
    consumer = stage.consumer(group_id="g")
    pending = consumer.commit_async({("t", 0): 5})
    await asyncio.sleep(1)
    began = stage.cluster.clock.monotonic()
    await consumer.close()
    assert stage.cluster.clock.monotonic() - began < 1
    with pytest.raises(SteleError):
        await pending


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@on_stage
async def test_a_member_that_joins_says_what_it_waits_for(
    stage: Stage, protocol: GroupProtocol
) -> None:
    def lose(broker: int, request: Any) -> Any:
        raise LOST

    coordinating(stage)
    stage.cluster.answer(consumer_group_heartbeat.API, lose)
    stage.cluster.answer(join_group.API, lose)
    async with stage.consumer(group_id="g", group_protocol=protocol) as consumer:
        consumer.subscribe(["t"])
        assert "must be joined" in str(consumer.why())
        await consumer.poll(timeout_ms=5_000)
        assert "group g is rebalancing, waits for: the coordinator (" in str(consumer.why())


@pytest.mark.parametrize("waiting", [join_group.API, sync_group.API])
@on_stage
async def test_a_coordinator_that_vanishes_is_left_while_its_answer_is_waited_for(
    stage: Stage, waiting: Any
) -> None:
    """Its host is gone, so no connection breaks. The group may take minutes to rebalance."""
    asked: list[tuple[int, float]] = []
    loop = asyncio.get_running_loop()

    def find(broker: int, request: find_coordinator.FindCoordinatorRequest) -> Any:
        now_id = 1 if loop.time() - began_s < 7 else 2
        found = find_coordinator.Coordinator("g", now_id, "127.0.0.1", 9000 + now_id)
        return find_coordinator.FindCoordinatorResponse(coordinators=[found])

    async def wait(broker: int, request: Any) -> Any:
        asked.append((broker, loop.time() - began_s))
        if broker == 1:
            await asyncio.sleep(600)
        return waiting.response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def join(broker: int, request: join_group.JoinGroupRequest) -> Any:
        return join_group.JoinGroupResponse(
            generation_id=1, protocol_name="range", leader="other", member_id="me"
        )

    began_s = loop.time()
    stage.cluster.answer(find_coordinator.API, find)
    stage.cluster.answer(join_group.API, join)
    stage.cluster.answer(heartbeat.API, lambda *_: heartbeat.HeartbeatResponse())
    stage.cluster.answer(waiting, wait)
    async with stage.consumer(group_id="g", group_protocol="classic") as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(ApiError, match="may not "):
            await consumer.poll(timeout_ms=30_000)
    (first, _), (second, again_s) = asked
    assert (first, second) == (1, 2)
    assert 10 <= again_s < 12, "it is looked up each five seconds"


@on_stage
async def test_a_coordinator_that_stays_is_waited_for(stage: Stage) -> None:
    """Nobody knows the coordinator for a while, and then it is the same one."""
    looked_up = joined = 0

    def find(broker: int, request: find_coordinator.FindCoordinatorRequest) -> Any:
        nonlocal looked_up
        looked_up += 1
        found = find_coordinator.Coordinator("g", 1, "127.0.0.1", 9001)
        if looked_up in (2, 3):
            found = find_coordinator.Coordinator(
                "g", -1, "", -1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        return find_coordinator.FindCoordinatorResponse(coordinators=[found])

    async def join(broker: int, request: join_group.JoinGroupRequest) -> Any:
        nonlocal joined
        joined += 1
        await asyncio.sleep(23)
        return join_group.JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    stage.cluster.answer(find_coordinator.API, find)
    stage.cluster.answer(join_group.API, join)
    async with stage.consumer(group_id="g", group_protocol="classic") as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(ApiError, match="may not "):
            await consumer.poll(timeout_ms=60_000)
    assert joined == 1
    assert looked_up == 5
