"""The coordinator of a group, as a member asks it (brokers as of Kafka 3.0).

JoinGroup and SyncGroup wait for other members. They have a connection of their own, on which they
delay neither heartbeats nor commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from stele.cluster.coordinator import group_coordinator
from stele.cluster.kafka_link import needs, question
from stele.cluster.messages import error_code
from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
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
from stele.wire import kafka
from stele.wire.consumer_protocol import PROTOCOL_TYPE
from stele.wire.kafka.messages import (
    consumer_group_heartbeat,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)

REBALANCE_GRACE_MS: Final = 5_000
"""How much longer than the longest rebalance the answers to JoinGroup and SyncGroup may take."""

HEARTBEAT_S: Final = 10.0
"""How long a heartbeat of the consumer protocol waits for its answer."""

_TOPICS_BY_NAME: Final = 9
_SEVERAL_GROUPS: Final = 8
_SEVERAL_MEMBERS: Final = 3
_STATIC_COMMITS: Final = 7
_STATIC_MEMBERS: Final = 5
_CLIENT_MAKES_MEMBER_ID: Final = 1
_UNCHANGED: Final = -1

Request = TypeVar("Request", bound=kafka.Struct)
Response = TypeVar("Response", bound=kafka.Struct)


class Coordinator:
    """The coordinator of one group.

    All methods raise UnreachableError if it cannot be found or does not answer, and ApiError if no
    broker may say which one it is. Answers tell the coordinator's errors.
    """

    def __init__(self, config: ConsumerConfig, view: ClusterView, group_id: str) -> None:
        self._config = config
        self._view = view
        self._group_id = group_id
        self._coordinator = group_coordinator(view, group_id)

    @property
    def where(self) -> str:
        """Which broker it is, or why none is known, in words."""
        return self._coordinator.where

    # ------------------------------------------------------------------ membership

    async def join(self, request: JoinRequest) -> JoinAnswer:
        standing = request.standing
        answer = await self._ask(
            join_group.API,
            join_group.JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=self._config.session_timeout_ms,
                rebalance_timeout_ms=self._config.max_poll_interval_ms,
                member_id=standing.member_id,
                group_instance_id=standing.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    join_group.JoinGroupRequestProtocol(name, metadata)
                    for name, metadata in request.protocols
                ],
                reason=request.reason,
            ),
            rebalance_s(self._config),
            at_least=_STATIC_MEMBERS,
            waits=True,
        )
        return JoinAnswer(
            self._noted(answer.error_code),
            answer.error_message or "",
            answer.member_id,
            answer.generation_id,
            answer.protocol_name or "",
            answer.leader,
            tuple(
                (each.member_id, each.group_instance_id, bytes(each.metadata))
                for each in answer.members
            ),
            answer.skip_assignment,
        )

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        standing = request.standing
        answer = await self._ask(
            sync_group.API,
            sync_group.SyncGroupRequest(
                group_id=self._group_id,
                generation_id=standing.generation,
                member_id=standing.member_id,
                group_instance_id=standing.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=request.protocol,
                assignments=[
                    sync_group.SyncGroupRequestAssignment(*each)
                    for each in request.assignments.items()
                ],
            ),
            rebalance_s(self._config),
            waits=True,
        )
        return SyncAnswer(
            self._noted(answer.error_code), answer.error_message or "", bytes(answer.assignment)
        )

    async def heartbeat(self, standing: Standing) -> ErrorCode:
        answer = await self._ask(
            heartbeat.API,
            heartbeat.HeartbeatRequest(
                self._group_id, standing.generation, standing.member_id, standing.instance_id
            ),
            heartbeat_s(self._config),
        )
        return self._noted(answer.error_code)

    async def leave(self, standing: Standing, reason: str) -> None:
        member = leave_group.MemberIdentity(standing.member_id, standing.instance_id, reason)
        answer = await self._ask(
            leave_group.API,
            leave_group.LeaveGroupRequest(self._group_id, members=[member]),
            self._view.attempt_s,
            at_least=_SEVERAL_MEMBERS,
        )
        self._noted(answer.error_code)

    async def consumer_heartbeat(self, request: Heartbeat) -> HeartbeatAnswer:
        """A heartbeat of the consumer protocol."""
        config = self._config
        message = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rebalance_timeout_ms=_UNCHANGED,
            subscribed_topic_names=None,
            topic_partitions=None,
        )
        if request.topics is not None:
            message.subscribed_topic_names = sorted(request.topics)
        if request.owned is not None:
            message.rebalance_timeout_ms = config.max_poll_interval_ms
            message.topic_partitions = [
                consumer_group_heartbeat.TopicPartitions(*each)
                for each in partitions_by_topic(request.owned).items()
            ]
            message.rack_id = config.client_rack or None
            message.server_assignor = config.group_remote_assignor
        answer = await self._ask(
            consumer_group_heartbeat.API,
            message,
            consumer_heartbeat_s(config),
            at_least=_CLIENT_MAKES_MEMBER_ID,
        )
        assigned = None
        if answer.assignment is not None:
            assigned = frozenset(
                PartitionId(topic.topic_id, number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            )
        return HeartbeatAnswer(
            self._noted(answer.error_code),
            answer.error_message or "",
            answer.member_epoch,
            answer.heartbeat_interval_ms,
            assigned,
        )

    # --------------------------------------------------------------------- offsets

    async def commit(
        self, standing: Standing, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> list[CommittedOffset]:
        """Each partition with its error: UNKNOWN_TOPIC_ID if the topic id of an offset belongs to
        no topic. Raises ApiError if all are refused at once."""
        # One request names all topics by their ids, or all by their names.
        by_id = {name: each for name, each in offsets.items() if each.topic_id}
        by_name = {name: each for name, each in offsets.items() if not each.topic_id}
        found: list[CommittedOffset] = []
        if by_id:
            found += await self._commit(standing, by_id, at_most=None)
        if by_name:
            found += await self._commit(standing, by_name, at_most=_TOPICS_BY_NAME)
        return found

    async def _commit(
        self,
        standing: Standing,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        at_most: int | None,
    ) -> list[CommittedOffset]:
        topics: dict[tuple[str, bytes], list[offset_commit.OffsetCommitRequestPartition]] = {}
        for name, each in offsets.items():
            topics.setdefault((name.topic, each.topic_id), []).append(
                offset_commit.OffsetCommitRequestPartition(
                    name.partition, each.offset, each.leader_epoch, each.metadata
                )
            )
        answer = await self._ask(
            offset_commit.API,
            offset_commit.OffsetCommitRequest(
                group_id=self._group_id,
                generation_id_or_member_epoch=standing.generation,
                member_id=standing.member_id,
                group_instance_id=standing.instance_id,
                topics=[
                    offset_commit.OffsetCommitRequestTopic(
                        name=name, topic_id=topic_id or kafka.ZERO_UUID, partitions=partitions
                    )
                    for (name, topic_id), partitions in topics.items()
                ],
            ),
            self._view.attempt_s,
            at_least=_STATIC_COMMITS,
            at_most=at_most,
        )
        names = {topic_id: name for name, topic_id in topics}
        return [
            CommittedOffset(
                TopicPartition(topic.name or names[topic.topic_id], told.partition_index),
                self._noted(told.error_code),
                message=told.error_message or answer.error_message or "",
            )
            for topic in answer.topics
            for told in topic.partitions
        ]

    async def committed(
        self, partitions: Sequence[TopicPartition], topic_ids: Mapping[str, bytes]
    ) -> list[CommittedOffset]:
        """``topic_ids``: the topics that are meant, by name. Of a name without an id, any topic is.
        Raises ApiError if all are refused at once."""
        by_id = [name for name in partitions if topic_ids.get(name.topic)]
        by_name = [name for name in partitions if not topic_ids.get(name.topic)]
        found: list[CommittedOffset] = []
        if by_id:
            found += await self._committed(by_id, topic_ids, at_most=None)
        if by_name:
            found += await self._committed(by_name, {}, at_most=_TOPICS_BY_NAME)
        return found

    async def _committed(
        self,
        partitions: Sequence[TopicPartition],
        topic_ids: Mapping[str, bytes],
        at_most: int | None,
    ) -> list[CommittedOffset]:
        by_topic: dict[str, list[int]] = {}
        for name in partitions:
            by_topic.setdefault(name.topic, []).append(name.partition)
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id=self._group_id,
            topics=[
                offset_fetch.OffsetFetchRequestTopics(
                    topic, topic_ids.get(topic, kafka.ZERO_UUID), numbers
                )
                for topic, numbers in by_topic.items()
            ],
        )
        answer = await self._ask(
            offset_fetch.API,
            offset_fetch.OffsetFetchRequest(groups=[group], require_stable=True),
            self._view.attempt_s,
            at_least=_SEVERAL_GROUPS,
            at_most=at_most,
        )
        (told,) = answer.groups
        code = self._noted(told.error_code)
        if code is not ErrorCode.NONE:
            what = "the request for committed offsets was refused"
            reason = told.error_message or explain(code)
            raise ApiError(code, f"group {self._group_id}: {what}: {reason}")
        names = {topic_ids.get(topic, b""): topic for topic in by_topic}
        return [
            CommittedOffset(
                TopicPartition(topic.name or names[topic.topic_id], each.partition_index),
                error_code(each.error_code),
                None
                if each.committed_offset < 0
                else OffsetAndMetadata(
                    each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                ),
            )
            for topic in told.topics
            for each in topic.partitions
        ]

    # --------------------------------------------------------------------- asking

    async def _ask(
        self,
        api: kafka.Api[Request, Response],
        message: Request,
        timeout_s: float,
        *,
        at_least: int = 0,
        at_most: int | None = None,
        waits: bool = False,
    ) -> Response:
        asked = question(api, needs(api, at_least, message), at_most=at_most, waits=waits)
        return await self._coordinator.ask(asked, timeout_s=timeout_s, waits=waits)

    def _noted(self, number: int) -> ErrorCode:
        code = error_code(number)
        self._coordinator.note(code)
        return code


def rebalance_s(config: ConsumerConfig) -> float:
    """How long JoinGroup and SyncGroup wait for their answers."""
    return (config.max_poll_interval_ms + REBALANCE_GRACE_MS) / 1000


def heartbeat_s(config: ConsumerConfig) -> float:
    """How long a heartbeat of the classic protocol waits: another one must fit into the session."""
    return min(config.request_timeout_ms, config.session_timeout_ms / 3) / 1000


def consumer_heartbeat_s(config: ConsumerConfig) -> float:
    """That of the consumer protocol, where only the coordinator knows the session."""
    return min(config.request_timeout_ms / 1000, HEARTBEAT_S)
