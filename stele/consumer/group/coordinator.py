"""Requests to a group's coordinator, which is looked up and may move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from stele.cluster.view import ClusterView, Message, error_code
from stele.config import ConsumerConfig
from stele.consumer.group.consumer_protocol import PROTOCOL_TYPE
from stele.consumer.group.reconciling import Heartbeat, HeartbeatAnswer
from stele.consumer.group.requests import (
    CommittedOffset,
    JoinAnswer,
    JoinRequest,
    Standing,
    SyncAnswer,
    SyncRequest,
)
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode, UnreachableError
from stele.ids import PartitionId, TopicPartition
from stele.records import OffsetAndMetadata
from stele.wire.v1 import groups_pb2 as pb
from stele.world import RpcError

SERVICE: Final = "/stele.v1.Groups/"

MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Errors after which the coordinator is looked up again."""

REBALANCE_GRACE_MS: Final = 5_000
"""How much longer than the longest rebalance the answers to JoinGroup and SyncGroup may take."""

HEARTBEAT_S: Final = 10.0
"""How long a heartbeat of the consumer protocol waits for its answer."""

AnswerT = TypeVar("AnswerT")


class Coordinator(Protocol):
    """The coordinator of one group, over one plane.

    All methods raise UnreachableError if it cannot be found or does not answer, and ApiError if no
    broker may say which one it is. Answers tell the coordinator's errors.
    """

    @property
    def where(self) -> str:
        """Which broker it is, or why none is known, in words."""
        ...

    async def join(self, request: JoinRequest) -> JoinAnswer: ...

    async def sync(self, request: SyncRequest) -> SyncAnswer: ...

    async def heartbeat(self, standing: Standing) -> ErrorCode: ...

    async def leave(self, standing: Standing, reason: str) -> None: ...

    async def consumer_heartbeat(self, request: Heartbeat) -> HeartbeatAnswer:
        """Of the consumer protocol."""
        ...

    async def commit(
        self, standing: Standing, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> list[CommittedOffset]:
        """Each partition with its error. Raises ApiError if all are refused at once."""
        ...

    async def committed(self, partitions: Sequence[TopicPartition]) -> list[CommittedOffset]:
        """Raises ApiError if all are refused at once."""
        ...


class GrpcCoordinator:
    """By ``stele.v1.Groups``."""

    def __init__(self, config: ConsumerConfig, view: ClusterView, group_id: str) -> None:
        self._config = config
        self._view = view
        self._group_id = group_id
        self._broker_id: int | None = None
        self._why_unknown = "not looked up yet"
        self._lookup = asyncio.Lock()

    @property
    def where(self) -> str:
        if self._broker_id is None:
            return f"unknown: {self._why_unknown}"
        return f"broker {self._broker_id}"

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
            self._rebalance_s,
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
            self._rebalance_s,
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
            # Another one must fit into the session.
            min(self._config.request_timeout_ms, self._config.session_timeout_ms / 3) / 1000,
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
            for topic_id, numbers in _by_topic(request.owned).items():
                message.owned.topics.add(topic_id=topic_id, partitions=numbers)
            if config.client_rack:
                message.rack = config.client_rack
            if config.group_remote_assignor is not None:
                message.server_assignor = config.group_remote_assignor
        answer = await self._ask(
            "ConsumerGroupHeartbeat",
            message,
            pb.ConsumerGroupHeartbeatResponse.FromString,
            # Another one must fit into the session, of which only the coordinator knows.
            min(config.request_timeout_ms / 1000, HEARTBEAT_S),
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

    @property
    def _rebalance_s(self) -> float:
        return (self._config.max_poll_interval_ms + REBALANCE_GRACE_MS) / 1000

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
            )
        answer = await self._ask(
            "OffsetCommit", request, pb.OffsetCommitResponse.FromString, self._view.attempt_s
        )
        self._check(answer, "the commit")
        found = [
            CommittedOffset(TopicPartition(each.topic, each.partition), error_code(each.error))
            for each in answer.partitions
        ]
        self._look_for_move(each.error for each in found)
        return found

    async def committed(self, partitions: Sequence[TopicPartition]) -> list[CommittedOffset]:
        by_topic: dict[str, list[int]] = {}
        for name in partitions:
            by_topic.setdefault(name.topic, []).append(name.partition)
        answer = await self._ask(
            "OffsetFetch",
            pb.OffsetFetchRequest(
                group=self._group_id,
                topics=[
                    pb.OffsetFetchRequest.Topic(topic=topic, partitions=numbers)
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
        broker_id = await self._find()
        try:
            answer = await self._view.ask(
                broker_id, SERVICE + method, request, parse, timeout_s=timeout_s
            )
        except RpcError as error:
            self._lost(broker_id, f"broker {broker_id}: {error}")
            raise UnreachableError(
                f"group {self._group_id}: its coordinator, broker {broker_id}: {error}"
            ) from error
        told: Any = answer
        self._look_for_move([error_code(told.error)])
        return answer

    def _look_for_move(self, codes: Iterable[ErrorCode]) -> None:
        for code in codes:
            if code in MOVED and self._broker_id is not None:
                self._lost(self._broker_id, f"broker {self._broker_id} answers {code.name}")

    def _lost(self, broker_id: int, why: str) -> None:
        if self._broker_id == broker_id:
            self._broker_id = None
            self._why_unknown = why

    async def _find(self) -> int:
        async with self._lookup:  # all who ask share one look-up
            if self._broker_id is None:
                self._broker_id = await self._look_up()
            return self._broker_id

    async def _look_up(self) -> int:
        answer = await self._view.ask_any(
            f"{SERVICE}FindCoordinator",
            pb.FindCoordinatorRequest(groups=[self._group_id]),
            pb.FindCoordinatorResponse.FromString,
        )
        (told,) = answer.coordinators
        code = error_code(told.error)
        if code is not ErrorCode.NONE:
            self._why_unknown = told.message or explain(code)
            self._view.ask_another_first()  # that broker may be cut off from the controllers
            raise ApiError(code, f"group {self._group_id}: {self._why_unknown}")
        if told.broker_id not in self._view.broker_ids():
            await self._view.refresh()
        return told.broker_id

    def _check(self, answer: Any, what: str) -> None:
        code = error_code(answer.error)
        if code is not ErrorCode.NONE:
            reason = answer.message or explain(code)
            raise ApiError(code, f"group {self._group_id}: {what} was refused: {reason}")


def _by_topic(partitions: Iterable[PartitionId]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        found.setdefault(topic_id, []).append(number)
    return found


def _instance(message: pb.JoinGroupResponse.Member) -> str | None:
    return message.group_instance_id if message.HasField("group_instance_id") else None
