"""The requests of consumer groups, as any client sends them: one attempt each, to the coordinator
that is known last. It shares no code with the groups of our client."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.sim.cluster.connections import Connections
from chaos.sim.laws.generations import Membership
from chaos.sim.partition_name import PartitionName
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.api import Api
from stele.wire.kafka.messages import (
    consumer_group_heartbeat,
    delete_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    share_group_heartbeat,
    sync_group,
)
from stele.wire.kafka.messages import describe_share_group_offsets as share_offsets

NO_MEMBER: Final = ""
_PROTOCOL: Final = "consumer"
_STRATEGY: Final = "drawn"
_NAMES_TOPICS: Final = 9  # the last version of OffsetCommit and OffsetFetch that does

ELSEWHERE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""The errors after which a client looks for the coordinator again."""
DECIDED: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
)
"""The errors after which a change surely has no effect."""

Offset = tuple[int, str]
"""A committed offset and its metadata."""


@dataclass(slots=True)
class GroupClient:
    """All methods raise ApiError or OSError: there is no answer, and the outcome is unknown. They
    return errors that coordinators decide."""

    group_id: str
    connections: Connections
    rng: random.Random
    tells_coordinators: bool = False
    """Assignments have Kafka's layout, ConsumerProtocolAssignment, which coordinators read when a
    group changes its protocol. Otherwise only members can read them."""
    _coordinator: int | None = field(default=None)

    # ------------------------------------------------------------------------- membership

    async def join(
        self,
        member_id: str,
        instance_id: str | None,
        topics: Iterable[str],
        change: int,
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        padding: int = 0,
    ) -> join_group.JoinGroupResponse:
        """``change``: a number by which the member's metadata differ from earlier ones.
        ``padding``: bytes of user data beside it."""
        request = join_group.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=_PROTOCOL,
            protocols=[
                join_group.JoinGroupRequestProtocol(
                    _STRATEGY, _subscription(topics, change, padding)
                )
            ],
        )
        timeout_s = 2 * rebalance_timeout_ms / 1000 + 1.0
        answer: join_group.JoinGroupResponse = await self._ask(
            join_group.API, request, timeout_s=timeout_s
        )
        self._heard(answer.error_code)
        return answer

    async def sync(
        self,
        member: Membership,
        assignments: Mapping[str, Iterable[PartitionName]],
        timeout_s: float,
    ) -> tuple[ErrorCode, list[PartitionName]]:
        encode = _common_assignment if self.tells_coordinators else _assignment
        request = sync_group.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            protocol_type=_PROTOCOL,
            protocol_name=_STRATEGY,
            assignments=[
                sync_group.SyncGroupRequestAssignment(member_id, encode(partitions))
                for member_id, partitions in assignments.items()
            ],
        )
        answer = await self._ask(sync_group.API, request, timeout_s=timeout_s)
        decode = _common_assigned if self.tells_coordinators else _assigned
        return self._heard(answer.error_code), decode(answer.assignment)

    async def beat(self, member: Membership) -> ErrorCode:
        request = heartbeat.HeartbeatRequest(
            group_id=self.group_id,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
        )
        return self._heard((await self._ask(heartbeat.API, request)).error_code)

    async def leave(self, member: Membership) -> ErrorCode:
        identity = leave_group.MemberIdentity(member.member_id, member.group_instance_id)
        request = leave_group.LeaveGroupRequest(group_id=self.group_id, members=[identity])
        answer = await self._ask(leave_group.API, request)
        return self._heard(answer.error_code or answer.members[0].error_code)

    async def consumer_beat(
        self, request: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest
    ) -> consumer_group_heartbeat.ConsumerGroupHeartbeatResponse:
        """Joins, stays and leaves in the consumer protocol."""
        request.group_id = self.group_id
        answer: consumer_group_heartbeat.ConsumerGroupHeartbeatResponse = await self._ask(
            consumer_group_heartbeat.API, request
        )
        self._heard(answer.error_code)
        return answer

    async def share_beat(
        self, request: share_group_heartbeat.ShareGroupHeartbeatRequest
    ) -> share_group_heartbeat.ShareGroupHeartbeatResponse:
        """Joins, stays and leaves as a member of a share group."""
        request.group_id = self.group_id
        answer: share_group_heartbeat.ShareGroupHeartbeatResponse = await self._ask(
            share_group_heartbeat.API, request
        )
        self._heard(answer.error_code)
        return answer

    async def share_offsets(
        self, topic: str, partitions: int
    ) -> dict[PartitionName, tuple[int, int]]:
        """The start offset and the lag of each share partition that has no error. Raises ApiError
        also if the coordinator refuses."""
        asked = share_offsets.DescribeShareGroupOffsetsRequestTopic(topic, list(range(partitions)))
        described = share_offsets.DescribeShareGroupOffsetsRequestGroup(self.group_id, [asked])
        request = share_offsets.DescribeShareGroupOffsetsRequest([described])
        answer = await self._ask(share_offsets.API, request)
        (group,) = answer.groups
        error = self._heard(group.error_code)
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        return {
            (each.topic_name, part.partition_index): (part.start_offset, part.lag)
            for each in group.topics
            for part in each.partitions
            if part.error_code == ErrorCode.NONE
        }

    # ------------------------------------------------------------------------- offsets

    async def commit(
        self, offsets: Mapping[PartitionName, Offset], member: Membership | None = None
    ) -> dict[PartitionName, ErrorCode]:
        """Without a member: as a client that assigns partitions itself."""
        request = offset_commit.OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=-1 if member is None else member.generation,
            member_id=NO_MEMBER if member is None else member.member_id,
            group_instance_id=None if member is None else member.group_instance_id,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        offset_commit.OffsetCommitRequestPartition(
                            number, offset, committed_metadata=metadata
                        )
                    ],
                )
                for (topic, number), (offset, metadata) in offsets.items()
            ],
        )
        answer = await self._ask(offset_commit.API, request, at_most=_NAMES_TOPICS)
        return {
            (topic.name, each.partition_index): self._heard(each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        }

    async def fetch(
        self,
        partitions: Iterable[PartitionName],
        *,
        require_stable: bool,
        member: Membership | None = None,
    ) -> dict[PartitionName, Offset | None]:
        """``member``: of the consumer protocol. Raises ApiError also if the coordinator refuses."""
        asked = [
            offset_fetch.OffsetFetchRequestTopics(t, partition_indexes=[n]) for t, n in partitions
        ]
        request = offset_fetch.OffsetFetchRequest(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(
                    self.group_id,
                    member_id=None if member is None else member.member_id,
                    member_epoch=-1 if member is None else member.generation,
                    topics=asked,
                )
            ],
            require_stable=require_stable,
        )
        answer = await self._ask(offset_fetch.API, request, at_most=_NAMES_TOPICS)
        (group,) = answer.groups
        error = self._heard(group.error_code)
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        return {
            (topic.name, each.partition_index): (each.committed_offset, each.metadata or "")
            if each.committed_offset >= 0
            else None
            for topic in group.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.NONE
        }

    async def delete_offsets(
        self, partitions: Iterable[PartitionName]
    ) -> dict[PartitionName, ErrorCode]:
        partitions = list(partitions)
        request = offset_delete.OffsetDeleteRequest(
            group_id=self.group_id,
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    topic, [offset_delete.OffsetDeleteRequestPartition(number)]
                )
                for topic, number in partitions
            ],
        )
        answer = await self._ask(offset_delete.API, request)
        error = self._heard(answer.error_code)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        return {
            (topic.name, each.partition_index): ErrorCode(each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        }

    async def delete_group(self) -> ErrorCode:
        request = delete_groups.DeleteGroupsRequest([self.group_id])
        answer = await self._ask(delete_groups.API, request)
        return self._heard(answer.results[0].error_code)

    # ------------------------------------------------------------------------- asking

    async def _ask(
        self,
        api: Api[Any, Any],
        message: Any,
        *,
        at_most: int | None = None,
        timeout_s: float = 3.0,
    ) -> Any:
        if self._coordinator is None:
            await self._find()
        assert self._coordinator is not None
        try:
            return await self.connections.ask(
                self._coordinator, api, message, at_most=at_most, timeout_s=timeout_s
            )
        except (ApiError, OSError):
            self._coordinator = None
            raise

    async def _find(self) -> None:
        broker = self.rng.choice(self.connections.brokers)
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[self.group_id])
        answer = await self.connections.ask(broker, find_coordinator.API, request)
        (found,) = answer.coordinators
        if found.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(found.error_code), found.error_message or "")
        self._coordinator = found.node_id

    def _heard(self, number: int) -> ErrorCode:
        error = ErrorCode(number)
        if error in ELSEWHERE:
            self._coordinator = None
        return error


def _subscription(topics: Iterable[str], change: int, padding: int) -> bytes:
    """ConsumerProtocolSubscription, version 0: the topics, and user data."""
    names = [topic.encode() for topic in topics]
    parts = [b"\x00\x00", len(names).to_bytes(4)]
    parts += [len(name).to_bytes(2) + name for name in names]
    return b"".join((*parts, (4 + padding).to_bytes(4), change.to_bytes(4), bytes(padding)))


def _common_assignment(partitions: Iterable[PartitionName]) -> bytes:
    """ConsumerProtocolAssignment, version 0: the partitions, each with its topic, and no user
    data."""
    parts = []
    for topic, number in partitions:
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}sii", len(name), name, 1, number))
    return struct.pack(">hi", 0, len(parts)) + b"".join(parts) + struct.pack(">i", -1)


def _common_assigned(assignment: bytes) -> list[PartitionName]:
    """A member without partitions may have got no bytes at all."""
    found: list[PartitionName] = []
    if not assignment:
        return found
    _, topics = struct.unpack_from(">hi", assignment)
    at = 6
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", assignment, at)
        topic = assignment[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (count,) = struct.unpack_from(">i", assignment, at)
        numbers = struct.unpack_from(f">{count}i", assignment, at + 4)
        at += 4 + 4 * count
        found += [(topic, number) for number in numbers]
    return found


def _assignment(partitions: Iterable[PartitionName]) -> bytes:
    """Only members read it: coordinators pass it on."""
    return ",".join(f"{topic}/{number}" for topic, number in partitions).encode()


def _assigned(assignment: bytes) -> list[PartitionName]:
    parts = [each.rpartition("/") for each in assignment.decode().split(",") if each]
    return [(topic, int(number)) for topic, _, number in parts]
