"""A member of the classic protocol with a coordinator of prepared answers, on virtual time."""

from __future__ import annotations

import asyncio
import re
from typing import cast

from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.group.assignors import ASSIGNORS
from stele.consumer.group.coordinator import Coordinator
from stele.consumer.group.member import GroupMember
from stele.consumer.group.membership import Membership
from stele.consumer.group.requests import JoinAnswer, JoinRequest
from stele.consumer.group.topic_choice import TopicChoice
from stele.errors import ErrorCode
from tests.support.stele import Stage, on_stage


class Loading:
    """A coordinator that refuses every JoinGroup for now."""

    def __init__(self) -> None:
        self.asked = 0

    async def join(self, request: JoinRequest) -> JoinAnswer:
        self.asked += 1
        return JoinAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class CountedChoice(TopicChoice):
    """Counts how often the topics of a pattern are looked up."""

    looked_up = 0

    async def found(self) -> frozenset[str]:
        self.looked_up += 1
        return await super().found()


@on_stage
async def test_a_refused_member_says_what_it_waits_for_and_looks_topics_up_once(
    stage: Stage,
) -> None:
    stage.cluster.create("t")
    config = ConsumerConfig(bootstrap_servers=stage.cluster.bootstrap_servers, group_id="g")
    view = ClusterView(config, stage.world)
    coordinator = Loading()
    membership = Membership([ASSIGNORS["range"]])
    member = GroupMember(
        config, view, cast(Coordinator, coordinator), membership, announce=lambda: None
    )
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
    await member.close()
    await view.close()
