"""The coordinator of a group over gRPC: ``stele.v1.Groups``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from stele.cluster.coordinator import group_coordinator
from stele.cluster.grpc_plane import Message, call
from stele.cluster.plane import error_code
from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.group.consumer_protocol import PROTOCOL_TYPE
from stele.consumer.group.coordinator import consumer_heartbeat_s, heartbeat_s, rebalance_s
from stele.consumer.group.reconciling import Heartbeat, HeartbeatAnswer
from stele.consumer.group.requests import (
    CommittedOffset,
    JoinAnswer,
    JoinRequest,
    Standing,
    SyncAnswer,
    SyncRequest,
    partitions_by_topic,
)
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId, TopicPartition
from stele.records import OffsetAndMetadata
from stele.wire.v1 import groups_pb2 as pb

SERVICE: Final = "/stele.v1.Groups/"

AnswerT = TypeVar("AnswerT")


class GrpcCoordinator:
    def __init__(self, config: ConsumerConfig, view: ClusterView, group_id: str) -> None:
        self._config = config
        self._view = view
        self._group_id = group_id
        self._coordinator = group_coordinator(view, group_id)

    @property
    def where(self) -> str:
        return self._coordinator.where

    # ------------------------------------------------------------------ membership

    async def join(self, request: JoinRequest) -> JoinAnswer:
        standing = request.standing
        answer = await self._ask(
            "JoinGroup",
            pb.JoinGroupRequest(
                group=self._group_id,
                member_id=standing.member_id,
                group_instance_id=standing.instance_id,
                session_timeout_ms=self._config.session_timeout_ms,
                rebalance_timeout_ms=self._config.max_poll_interval_ms,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    pb.JoinGroupRequest.Protocol(name=name, metadata=metadata)
                    for name, metadata in request.protocols
                ],
                reason=request.reason,
                client_id=self._config.client_id,
            ),
            pb.JoinGroupResponse.FromString,
            rebalance_s(self._config),
        )
        return JoinAnswer(
            error_code(answer.error),
            answer.message,
            answer.member_id,
            answer.generation,
            answer.protocol,
            answer.leader,
            tuple((each.member_id, _instance(each), each.metadata) for each in answer.members),
            answer.skip_assignment,
        )

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        standing = request.standing
        answer = await self._ask(
            "SyncGroup",
            pb.SyncGroupRequest(
                group=self._group_id,
                generation=standing.generation,
                member_id=standing.member_id,
                group_instance_id=standing.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol=request.protocol,
                assignments=[
                    pb.SyncGroupRequest.Assignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in request.assignments.items()
                ],
            ),
            pb.SyncGroupResponse.FromString,
            rebalance_s(self._config),
        )
        return SyncAnswer(error_code(answer.error), answer.message, answer.assignment)

    async def heartbeat(self, standing: Standing) -> ErrorCode:
        answer = await self._ask(
            "Heartbeat",
            pb.GroupHeartbeatRequest(
                group=self._group_id,
                generation=standing.generation,
                member_id=standing.member_id,
                group_instance_id=standing.instance_id,
            ),
            pb.GroupHeartbeatResponse.FromString,
            heartbeat_s(self._config),
        )
        return error_code(answer.error)

    async def leave(self, standing: Standing, reason: str) -> None:
        await self._ask(
            "LeaveGroup",
            pb.LeaveGroupRequest(
                group=self._group_id,
                members=[
                    pb.LeaveGroupRequest.Member(
                        member_id=standing.member_id,
                        group_instance_id=standing.instance_id,
                        reason=reason,
                    )
                ],
            ),
            pb.LeaveGroupResponse.FromString,
            self._view.attempt_s,
        )

    async def consumer_heartbeat(self, request: Heartbeat) -> HeartbeatAnswer:
        config = self._config
        message = pb.ConsumerGroupHeartbeatRequest(
            group=self._group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            group_instance_id=request.instance_id,
            client_id=config.client_id,
        )
        if request.topics is not None:
            message.subscribed_topics.names.extend(sorted(request.topics))
            message.subscribed_topics.SetInParent()
        if request.owned is not None:
            message.rebalance_timeout_ms = config.max_poll_interval_ms
            message.owned.SetInParent()
            for topic_id, numbers in partitions_by_topic(request.owned).items():
                message.owned.topics.add(topic_id=topic_id, partitions=numbers)
            if config.client_rack:
                message.rack = config.client_rack
            if config.group_remote_assignor is not None:
                message.server_assignor = config.group_remote_assignor
        answer = await self._ask(
            "ConsumerGroupHeartbeat",
            message,
            pb.ConsumerGroupHeartbeatResponse.FromString,
            consumer_heartbeat_s(config),
        )
        assigned = None
        if answer.HasField("assignment"):
            assigned = frozenset(
                PartitionId(topic.topic_id, number)
                for topic in answer.assignment.topics
                for number in topic.partitions
            )
        return HeartbeatAnswer(
            error_code(answer.error),
            answer.message,
            answer.member_epoch,
            answer.heartbeat_interval_ms,
            assigned,
        )

    # --------------------------------------------------------------------- offsets

    async def commit(
        self, standing: Standing, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> list[CommittedOffset]:
        request = pb.OffsetCommitRequest(
            group=self._group_id,
            generation=standing.generation,
            member_id=standing.member_id,
            group_instance_id=standing.instance_id,
        )
        for name, each in offsets.items():
            request.partitions.add(
                topic=name.topic,
                partition=name.partition,
                offset=each.offset,
                leader_epoch=each.leader_epoch,
                metadata=each.metadata,
                topic_id=each.topic_id,
            )
        answer = await self._ask(
            "OffsetCommit", request, pb.OffsetCommitResponse.FromString, self._view.attempt_s
        )
        self._check(answer, "the commit")
        found = [
            CommittedOffset(
                TopicPartition(each.topic, each.partition),
                error_code(each.error),
                message=each.message,
            )
            for each in answer.partitions
        ]
        for told in found:
            self._coordinator.note(told.error)
        return found

    async def committed(
        self, partitions: Sequence[TopicPartition], topic_ids: Mapping[str, bytes]
    ) -> list[CommittedOffset]:
        by_topic: dict[str, list[int]] = {}
        for name in partitions:
            by_topic.setdefault(name.topic, []).append(name.partition)
        answer = await self._ask(
            "OffsetFetch",
            pb.OffsetFetchRequest(
                group=self._group_id,
                topics=[
                    pb.OffsetFetchRequest.Topic(
                        topic=topic, partitions=numbers, topic_id=topic_ids.get(topic, b"")
                    )
                    for topic, numbers in by_topic.items()
                ],
                require_stable=True,
            ),
            pb.OffsetFetchResponse.FromString,
            self._view.attempt_s,
        )
        self._check(answer, "the request for committed offsets")
        return [
            CommittedOffset(
                TopicPartition(each.topic, each.partition),
                error_code(each.error),
                None
                if each.offset < 0
                else OffsetAndMetadata(each.offset, each.leader_epoch, each.metadata),
            )
            for each in answer.partitions
        ]

    # --------------------------------------------------------------------- asking

    async def _ask(
        self,
        method: str,
        request: Message,
        parse: Callable[[bytes], AnswerT],
        timeout_s: float,
    ) -> AnswerT:
        answer = await self._coordinator.ask(
            call(SERVICE + method, request, parse), timeout_s=timeout_s
        )
        told: Any = answer
        self._coordinator.note(error_code(told.error))
        return answer

    def _check(self, answer: Any, what: str) -> None:
        code = error_code(answer.error)
        if code is not ErrorCode.NONE:
            reason = answer.message or explain(code)
            raise ApiError(code, f"group {self._group_id}: {what} was refused: {reason}")


def _instance(message: pb.JoinGroupResponse.Member) -> str | None:
    return message.group_instance_id if message.HasField("group_instance_id") else None
