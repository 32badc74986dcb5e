"""Members that the coordinator refuses, and what becomes of their partitions, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stele.consumer.consumer import Consumer
from stele.consumer.group.listener import RebalanceListener
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.kafka.messages import (
    consumer_group_heartbeat,
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
from tests.stele.consumer.group.test_coordinator_answers import coordinating
from tests.stele.consumer.test_truncation import append, read
from tests.support.stele import Stage, on_stage

T0 = TopicPartition("t", 0)


class Alone:
    """A coordinator with one member, which owns everything. While it is ``refused``, it may not
    READ the group: brokers refuse every request of a member then."""

    def __init__(self, stage: Stage) -> None:
        self.refused = False
        self.heard = 0  # heartbeats
        self.joins = 0
        self.interval_ms = 1_000  # between heartbeats of the consumer protocol
        self.committed = -1
        self._topic = stage.cluster.topics["t"]
        coordinating(stage)
        for api, answer in (
            (join_group.API, self._join),
            (sync_group.API, self._sync),
            (heartbeat.API, self._beat),
            (consumer_group_heartbeat.API, self._reconcile),
            (offset_fetch.API, self._committed),
            (offset_commit.API, self._commit),
        ):
            stage.cluster.answer(api, answer)

    @property
    def _code(self) -> ErrorCode:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED if self.refused else ErrorCode.NONE

    def _commit(self, broker: int, request: Any) -> Any:
        (topic,) = request.topics
        (part,) = topic.partitions
        if not self.refused:
            self.committed = part.committed_offset
        told = offset_commit.OffsetCommitResponsePartition(0, self._code)
        answered = offset_commit.OffsetCommitResponseTopic(topic.topic_id, topic.name, [told])
        return offset_commit.OffsetCommitResponse(topics=[answered])

    def _join(self, broker: int, request: Any) -> Any:
        self.joins += 1
        if self.refused:
            return join_group.JoinGroupResponse(error_code=self._code)
        (protocol,) = request.protocols
        me = join_group.JoinGroupResponseMember("me", None, protocol.metadata)
        return join_group.JoinGroupResponse(
            generation_id=1,
            protocol_name=protocol.name,
            leader="me",
            member_id="me",
            members=[me],
        )

    def _sync(self, broker: int, request: Any) -> Any:
        ((_, share),) = ((each.member_id, each.assignment) for each in request.assignments)
        return sync_group.SyncGroupResponse(assignment=share)

    def _beat(self, broker: int, request: Any) -> Any:
        self.heard += 1
        return heartbeat.HeartbeatResponse(error_code=self._code)

    def _reconcile(self, broker: int, request: Any) -> Any:
        self.heard += 1
        self.joins += request.member_epoch == 0
        if self.refused:
            return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(error_code=self._code)
        whole = consumer_group_heartbeat.Assignment(
            [consumer_group_heartbeat.TopicPartitions(self._topic.topic_id, [0])]
        )
        return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=max(1, request.member_epoch),
            heartbeat_interval_ms=self.interval_ms,
            assignment=whole,
        )

    def _committed(self, broker: int, request: Any) -> Any:
        (group,) = request.groups
        if self.refused:
            return OffsetFetchResponse(
                groups=[OffsetFetchResponseGroup("g", error_code=self._code)]
            )
        none = [OffsetFetchResponsePartitions(0, self.committed)]
        topics = [
            OffsetFetchResponseTopics(each.name, each.topic_id, none) for each in group.topics
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics)])


PROTOCOLS = pytest.mark.parametrize(
    "options",
    [
        {"partition_assignment_strategy": "range"},
        {"partition_assignment_strategy": "cooperative-sticky"},
        {"group_protocol": "consumer"},
    ],
    ids=["eager", "cooperative", "consumer protocol"],
)
POLLS = pytest.mark.parametrize(
    "poll",
    [
        lambda consumer: consumer.poll(timeout_ms=20_000),
        lambda consumer: consumer.poll_arrow(timeout_ms=20_000),
        anext,
    ],
    ids=["poll", "poll_arrow", "async for"],
)
Poll = Callable[[Consumer], Awaitable[object]]


async def refused(consumer: Consumer, poll: Poll) -> None:
    with pytest.raises(ApiError) as failure:
        await poll(consumer)
    assert failure.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


@PROTOCOLS
@POLLS
@on_stage
async def test_a_member_without_the_right_hears_it_from_each_poll_and_goes_on_when_it_is_back(
    stage: Stage, *, options: dict[str, Any], poll: Poll
) -> None:
    lost: list[list[TopicPartition]] = []
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    coordinator = Alone(stage)
    listener = RebalanceListener(on_partitions_lost=lost.append)
    async with stage.consumer(group_id="g", enable_auto_commit=False, **options) as consumer:
        consumer.subscribe(["t"], listener=listener)
        assert await read(consumer, 1) == [b"a"]
        coordinator.refused = True
        await refused(consumer, poll)
        append(partition, b"b")
        for _ in range(3):
            await refused(consumer, poll)
        assert lost == [[T0]]
        assert consumer.assignment() == []
        coordinator.refused = False
        coordinator.heard = 0
        assert await read(consumer, 2) == [b"a", b"b"], "nothing was committed"
        await asyncio.sleep(10)
        assert coordinator.heard > 2


@PROTOCOLS
@on_stage
async def test_an_automatic_commit_that_is_refused_ends_the_membership(
    stage: Stage, *, options: dict[str, Any]
) -> None:
    """Heartbeats come so rarely that the commit is the first to be refused."""
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    coordinator = Alone(stage)
    coordinator.interval_ms = 40_000
    rare = {"heartbeat_interval_ms": 40_000, "session_timeout_ms": 120_000}
    async with stage.consumer(group_id="g", **options, **rare) as consumer:
        consumer.subscribe(["t"])
        assert await read(consumer, 1) == [b"a"]
        coordinator.refused = True
        await asyncio.sleep(6)
        await consumer.poll(timeout_ms=0)
        await asyncio.sleep(1)
        append(partition, b"b")
        await refused(consumer, lambda each: each.poll(timeout_ms=2_000))
        await refused(consumer, lambda each: each.poll(timeout_ms=2_000))
        coordinator.refused = False
        assert (await read(consumer, 2))[-1] == b"b"


@on_stage
async def test_a_reader_of_its_own_partitions_hears_of_each_refused_automatic_commit(
    stage: Stage,
) -> None:
    append(stage.cluster.create("t").partitions[0], b"a", b"b")
    coordinator = Alone(stage)
    async with stage.consumer(group_id="g") as consumer:
        consumer.assign([T0])
        assert await read(consumer, 2) == [b"a", b"b"]
        coordinator.refused = True
        await asyncio.sleep(6)
        for _ in range(2):
            await consumer.poll(timeout_ms=0)
            await refused(consumer, lambda each: each.poll(timeout_ms=2_000))
            assert await consumer.poll(timeout_ms=0) == [], "once for each commit"
            await asyncio.sleep(6)
        coordinator.refused = False
        await consumer.poll(timeout_ms=1_000)
        await asyncio.sleep(6)
        await consumer.poll(timeout_ms=1_000)
        assert coordinator.committed == 2


@on_stage
async def test_a_start_that_was_refused_is_looked_up_when_the_right_is_back(stage: Stage) -> None:
    append(stage.cluster.create("t").partitions[0], b"a", b"b")
    coordinator = Alone(stage)
    coordinator.committed = 1
    coordinator.refused = True
    async with stage.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([T0])
        for _ in range(3):
            await refused(consumer, lambda each: each.poll(timeout_ms=20_000))
        with pytest.raises(ApiError) as failure:
            await consumer.position("t", 0)
        assert failure.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        coordinator.refused = False
        await asyncio.sleep(2)
        assert await read(consumer, 1) == [b"b"]


@PROTOCOLS
@on_stage
async def test_polls_of_a_refused_member_do_not_flood_the_coordinator(
    stage: Stage, *, options: dict[str, Any]
) -> None:
    stage.cluster.create("t")
    coordinator = Alone(stage)
    coordinator.refused = True
    began_s = stage.cluster.clock.monotonic()
    async with stage.consumer(group_id="g", **options) as consumer:
        consumer.subscribe(["t"])
        for _ in range(10):
            await refused(consumer, lambda each: each.poll(timeout_ms=20_000))
        assert coordinator.joins == 10
        assert stage.cluster.clock.monotonic() - began_s > 5
