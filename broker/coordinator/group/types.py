"""What group coordinators are asked and what they answer, as values.

Fields have the meaning that they have in Kafka's protocol. An answer with an error other than NONE
means nothing by its other fields, unless they say so.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from stele.errors import ErrorCode
from stele.wire.kafka.primitives import ZERO_UUID

UNKNOWN_MEMBER: Final = ""
"""The member id of somebody who has not been given one yet."""

NO_GENERATION: Final = -1
CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers: their metadata name the topics that they subscribe to."""


class GroupState(enum.Enum):
    """The states of a group of the classic protocol, by the names that Kafka tells."""

    EMPTY = "Empty"  # no members; there may be offsets
    PREPARING_REBALANCE = "PreparingRebalance"  # members join
    COMPLETING_REBALANCE = "CompletingRebalance"  # the leader's assignment is waited for
    STABLE = "Stable"
    DEAD = "Dead"  # there is no such group


class GroupType(enum.Enum):
    """The protocol that the members of a group speak."""

    CLASSIC = "classic"


# ------------------------------------------------------------------------------- membership


class MemberProtocol(NamedTuple):
    """One way of assigning partitions that a member can go by, and what it says for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinRequest:
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]  # the preferred one first
    client_id: str
    client_host: str
    reason: str = ""
    requires_known_member_id: bool = True
    """A new dynamic member joins in two steps: it is given its id first (KIP-394)."""
    supports_skipping_assignment: bool = True
    """A leader that was restarted may be told to leave the assignment as it is (KIP-814)."""


class JoinedMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    error: ErrorCode
    member_id: str  # also with an error: of MEMBER_ID_REQUIRED, the one to join with
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()  # all of them for the leader, nobody for others
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]  # by member id; of the leader only


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """The answer is an ErrorCode."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


class LeavingMember(NamedTuple):
    """A member that leaves, or that an administrator removes by its instance id alone."""

    member_id: str
    group_instance_id: str | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    error: ErrorCode
    members: tuple[ErrorCode, ...] = ()
    """One for each member of the request, in its order."""


# ------------------------------------------------------------------------------- administration


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribeAnswer:
    group_id: str
    state: GroupState
    protocol_type: str = ""
    protocol: str = ""  # empty unless the group is stable
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Empty filters let everything pass; case does not matter."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: GroupState
    group_type: GroupType


# ------------------------------------------------------------------------------- offsets


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: bytes = ZERO_UUID  # zeros: not known


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int | None = None
    """How long the client wants them kept, if it says so: the oldest versions do."""
    knows_group_id_not_found: bool = True
    """Else a group that is not there is told as ILLEGAL_GENERATION, as before version 9."""


@dataclass(frozen=True, slots=True)
class OffsetCommitAnswer:
    errors: tuple[ErrorCode, ...]
    """One for each offset of the request, in its order."""


class TopicToFetch(NamedTuple):
    topic: str
    partitions: tuple[int, ...]
    topic_id: bytes = ZERO_UUID
    """Offsets that were committed for another topic of that name are not told; zeros: any."""


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    group_id: str
    topics: tuple[TopicToFetch, ...] | None  # None: all that the group has committed
    require_stable: bool = False
    """Wait for the newest commits instead of telling what was before them (KIP-447)."""


class FetchedOffset(NamedTuple):
    topic: str
    partition: int
    offset: int = -1  # -1: none
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True)
class OffsetFetchAnswer:
    offsets: tuple[FetchedOffset, ...]
    """In the order of the request."""


class DeletedTopic(NamedTuple):
    """A topic that is no more; another one may have its name by now."""

    topic: str
    topic_id: bytes


class OffsetToDelete(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetDeleteRequest:
    group_id: str
    offsets: tuple[OffsetToDelete, ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteAnswer:
    error: ErrorCode
    errors: tuple[ErrorCode, ...] = ()
    """One for each offset of the request, in its order."""
