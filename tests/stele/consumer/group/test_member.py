"""A member of the classic protocol with a coordinator of prepared answers, on virtual time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.group.assignors import ASSIGNORS
from stele.consumer.group.coordinator import Coordinator
from stele.consumer.group.member import GroupMember
from stele.consumer.group.membership import Membership, State
from stele.consumer.group.requests import (
    JoinAnswer,
    JoinRequest,
    Standing,
    SyncAnswer,
    SyncRequest,
)
from stele.consumer.group.topic_choice import TopicChoice
from stele.errors import ErrorCode, FencedInstanceError, UnreachableError
from tests.support.stele import FakePartition, Stage, on_stage


class Loading:
    """A coordinator that refuses every JoinGroup for now."""

    def __init__(self) -> None:
        self.asked = 0

    async def join(self, request: JoinRequest) -> JoinAnswer:
        self.asked += 1
        return JoinAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Leading:
    """A coordinator with this member alone, which waits with the share until it is ``assigned``."""

    def __init__(self) -> None:
        self.assigned = asyncio.Event()
        self.left: list[Standing] = []
        self.heard = 0  # heartbeats
        self.unreachable = False
        self.answers = ErrorCode.NONE  # to heartbeats

    async def join(self, request: JoinRequest) -> JoinAnswer:
        ((protocol, subscription),) = request.protocols
        members = (("me", None, subscription),)
        return JoinAnswer(ErrorCode.NONE, "", "me", 1, protocol, "me", members)

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        await self.assigned.wait()
        return SyncAnswer(ErrorCode.NONE, "", request.assignments["me"])

    async def heartbeat(self, standing: Standing) -> ErrorCode:
        self.heard += 1
        if self.unreachable:
            raise UnreachableError("cut off")
        return self.answers

    async def leave(self, standing: Standing, reason: str) -> None:
        self.left.append(standing)


class Silent(Leading):
    """Waits for other members with the answer to each JoinGroup."""

    async def join(self, request: JoinRequest) -> JoinAnswer:
        await asyncio.sleep(30)
        return await super().join(request)


class CountedChoice(TopicChoice):
    """Counts how often the topics of a pattern are looked up."""

    looked_up = 0

    async def found(self) -> frozenset[str]:
        self.looked_up += 1
        return await super().found()


@asynccontextmanager
async def member_of(
    stage: Stage, coordinator: Loading | Leading, instance_id: str | None = None
) -> AsyncIterator[tuple[ClusterView, GroupMember]]:
    servers = stage.cluster.bootstrap_servers
    config = ConsumerConfig(bootstrap_servers=servers, group_id="g", group_instance_id=instance_id)
    view = ClusterView(config, stage.world)
    membership = Membership([ASSIGNORS["range"]], instance_id)
    member = GroupMember(
        config, view, cast(Coordinator, coordinator), membership, announce=lambda: None
    )
    yield view, member
    await member.close()
    await view.close()


@on_stage
async def test_a_refused_member_says_what_it_waits_for_and_looks_topics_up_once(
    stage: Stage,
) -> None:
    stage.cluster.create("t")
    coordinator = Loading()
    async with member_of(stage, coordinator) as (view, member):
        membership = member.membership
        choice = CountedChoice(re.compile("t"), view)
        member.subscribe(choice)
        member.join()
        await asyncio.sleep(10)
        assert coordinator.asked > 3
        assert choice.looked_up == 1
        assert membership.subscription == {"t"}
        assert (membership.needs_join, member.needs_join) == (True, False), "it is at it"
        assert member.waits_for == (
            "another attempt, since the coordinator answers COORDINATOR_LOAD_IN_PROGRESS"
        )


@on_stage
async def test_a_leader_assigns_partitions_that_were_added_before_it_took_its_share(
    stage: Stage,
) -> None:
    """Polls look at the metadata all the while. They forget no news that they cannot use yet."""
    topic = stage.cluster.create("t", 1)
    coordinator = Leading()
    async with member_of(stage, coordinator) as (view, member):
        member.subscribe(TopicChoice(["t"], view))
        member.join()
        await asyncio.sleep(1)
        topic.partitions[1] = FakePartition(1)
        await view.refresh()
        member.consider_metadata()
        coordinator.assigned.set()
        await asyncio.sleep(1)
        member.consider_metadata()
        membership = member.membership
        assert membership.state is State.ASSIGNED
        share = membership.share()
        assert share.added == {("t", 0)}
        membership.took_share(share)
        member.consider_metadata()
        assert member.needs_join
        assert membership.reason == "the partitions of the topics changed"


@pytest.mark.parametrize(
    ("has_joined", "instance_id", "leaves"),
    [(True, None, True), (True, "one", False), (False, None, False)],
)
@on_stage
async def test_only_a_member_that_does_not_come_back_says_that_it_leaves(
    stage: Stage, *, has_joined: bool, instance_id: str | None, leaves: bool
) -> None:
    stage.cluster.create("t")
    coordinator = Leading()
    coordinator.assigned.set()
    async with member_of(stage, coordinator, instance_id) as (view, member):
        member.subscribe(TopicChoice(["t"], view))
        if has_joined:
            member.join()
            await asyncio.sleep(1)
        await member.leave("so")
    assert coordinator.left == ([Standing("me", 1)] if leaves else [])


@on_stage
async def test_a_member_that_joins_sends_no_heartbeats(stage: Stage) -> None:
    """Its JoinGroup keeps it alive. It has no generation to name yet."""
    stage.cluster.create("t")
    coordinator = Silent()
    coordinator.assigned.set()
    async with member_of(stage, coordinator) as (view, member):
        member.subscribe(TopicChoice(["t"], view))
        member.start()
        await asyncio.sleep(10)
        member.join()
        await asyncio.sleep(20)
        assert coordinator.heard == 0
        await asyncio.sleep(20)
        assert coordinator.heard > 0


@on_stage
async def test_a_heartbeat_without_an_answer_is_repeated_before_the_next_is_due(
    stage: Stage,
) -> None:
    """The session may end before many intervals are over."""
    stage.cluster.create("t")
    coordinator = Leading()
    coordinator.assigned.set()
    async with member_of(stage, coordinator) as (view, member):
        member.subscribe(TopicChoice(["t"], view))
        member.start()
        member.join()
        coordinator.unreachable = True
        await asyncio.sleep(4)
        assert coordinator.heard > 2, "the interval is 3 s"
        coordinator.unreachable = False
        await asyncio.sleep(1)
        coordinator.heard = 0
        await asyncio.sleep(10)
        assert 2 < coordinator.heard < 5


@on_stage
async def test_a_member_that_another_process_has_replaced_joins_no_more(stage: Stage) -> None:
    """Two of the same instance id would replace each other for ever."""
    stage.cluster.create("t")
    coordinator = Leading()
    coordinator.assigned.set()
    async with member_of(stage, coordinator, "one") as (view, member):
        member.subscribe(TopicChoice(["t"], view))
        member.start()
        member.join()
        await asyncio.sleep(1)
        coordinator.answers = ErrorCode.REBALANCE_IN_PROGRESS
        await asyncio.sleep(3)
        assert "group_instance_id" not in str(member.failure), "a rebalance is no failure"
        coordinator.answers = ErrorCode.FENCED_INSTANCE_ID
        await asyncio.sleep(3)
        assert isinstance(member.failure, FencedInstanceError)
        assert "group_instance_id='one'" in str(member.failure)
        assert (member.needs_join, member.membership.needs_join) == (False, True)
        coordinator.heard = 0
        await asyncio.sleep(10)
        assert coordinator.heard == 0
