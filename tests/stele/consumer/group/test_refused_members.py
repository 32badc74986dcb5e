"""Members that the coordinator refuses, and what becomes of their partitions, on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stele.consumer.group.listener import RebalanceListener
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.kafka.messages import (
    consumer_group_heartbeat,
    heartbeat,
    join_group,
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
    """A coordinator with one member, which owns everything unless it is ``refused``."""

    def __init__(self, stage: Stage) -> None:
        self.refused = False
        self.heard = 0  # heartbeats
        self._topic = stage.cluster.topics["t"]
        self._error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        coordinating(stage)
        for api, answer in (
            (join_group.API, self._join),
            (sync_group.API, self._sync),
            (heartbeat.API, self._beat),
            (consumer_group_heartbeat.API, self._reconcile),
            (offset_fetch.API, self._committed),
        ):
            stage.cluster.answer(api, answer)

    def _join(self, broker: int, request: Any) -> Any:
        if self.refused:
            return join_group.JoinGroupResponse(error_code=self._error)
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
        code = ErrorCode.REBALANCE_IN_PROGRESS if self.refused else ErrorCode.NONE
        return heartbeat.HeartbeatResponse(error_code=code)

    def _reconcile(self, broker: int, request: Any) -> Any:
        self.heard += 1
        if self.refused:
            return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(error_code=self._error)
        whole = consumer_group_heartbeat.Assignment(
            [consumer_group_heartbeat.TopicPartitions(self._topic.topic_id, [0])]
        )
        return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=max(1, request.member_epoch),
            heartbeat_interval_ms=1_000,
            assignment=whole,
        )

    def _committed(self, broker: int, request: Any) -> Any:
        (group,) = request.groups
        none = [OffsetFetchResponsePartitions(0, -1)]
        topics = [
            OffsetFetchResponseTopics(each.name, each.topic_id, none) for each in group.topics
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics)])


@pytest.mark.parametrize(
    ("options", "gives_up_first"),
    [
        ({"partition_assignment_strategy": "range"}, True),
        ({"partition_assignment_strategy": "cooperative-sticky"}, False),
        ({"group_protocol": "consumer"}, False),
    ],
)
@on_stage
async def test_a_refused_member_loses_its_partitions_once_and_gets_them_back(
    stage: Stage, *, options: dict[str, Any], gives_up_first: bool
) -> None:
    """Somebody has taken the permission away, and given it again."""
    lost: list[list[TopicPartition]] = []
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    coordinator = Alone(stage)
    listener = RebalanceListener(on_partitions_lost=lost.append)
    async with stage.consumer(group_id="g", enable_auto_commit=False, **options) as consumer:
        consumer.subscribe(["t"], listener=listener)
        assert await read(consumer, 1) == [b"a"]
        coordinator.refused = True
        for _ in range(3):
            with pytest.raises(ApiError) as failure:
                await consumer.poll(timeout_ms=20_000)
            assert failure.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert lost == ([] if gives_up_first else [[T0]])
        assert consumer.assignment() == []
        coordinator.refused = False
        consumer.subscribe(["t"], listener=listener)
        coordinator.heard = 0
        assert await read(consumer, 1) == [b"a"], "nothing was committed"
        await asyncio.sleep(10)
        assert coordinator.heard > 2
