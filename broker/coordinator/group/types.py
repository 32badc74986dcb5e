"""Requests to group coordinators and their answers, as values.

Fields have the same meaning as in Kafka's protocol. If an answer has an error, its other fields
have no meaning unless their comment says so.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from broker.coordinator.step import Producer, Request
from stele.errors import ErrorCode
from stele.wire.kafka.primitives import ZERO_UUID

A = TypeVar("A")

UNKNOWN_MEMBER: Final = ""
"""The member id of a client that has not got one yet."""

NO_GENERATION: Final = -1
CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers. Their metadata name the topics that they subscribe to."""


class GroupState(enum.Enum):
    """The states of groups of all protocols, with Kafka's names."""

    EMPTY = "Empty"  # no members; there may be offsets
    PREPARING_REBALANCE = "PreparingRebalance"  # classic: the members join the next generation
    COMPLETING_REBALANCE = "CompletingRebalance"  # classic: the leader assigns partitions
    ASSIGNING = "Assigning"  # consumer: the next heartbeat makes a new target assignment
    RECONCILING = "Reconciling"  # consumer: members have not come to the target assignment
    STABLE = "Stable"
    DEAD = "Dead"  # there is no such group


class GroupType(enum.Enum):
    """The group protocol that the members use."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class GroupRequest(Request[A]):
    """What the coordinator of one group is asked."""

    group_id: str


# ------------------------------------------------------------------------------- membership


class MemberProtocol(NamedTuple):
    """A way to assign partitions that a member supports, and the member's metadata for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinRequest(GroupRequest["JoinAnswer"]):
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
    """Whether a new dynamic member first gets its id and then joins with it (KIP-394)."""
    supports_skipping_assignment: bool = True
    """Whether the client knows ``skip_assignment`` (KIP-814)."""


class JoinedMember(NamedTuple):
    """A member, as described to the leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    error: ErrorCode
    member_id: str  # also with an error; with MEMBER_ID_REQUIRED it is the one to join with
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()  # empty unless the receiver is the leader
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest(GroupRequest["SyncAnswer"]):
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
class HeartbeatRequest(GroupRequest[ErrorCode]):
    generation: int
    member_id: str
    group_instance_id: str | None


class LeavingMember(NamedTuple):
    """A member that leaves. An administrator may name it by its instance id alone."""

    member_id: str
    group_instance_id: str | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LeaveRequest(GroupRequest["LeaveAnswer"]):
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
class DescribeRequest(GroupRequest["DescribeAnswer"]):
    """A group as DescribeGroups shows it, which only knows the classic protocol."""


@dataclass(frozen=True, slots=True)
class DescribeAnswer:
    group_id: str
    state: GroupState
    protocol_type: str = ""
    protocol: str = ""  # empty unless the group is stable
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ListRequest(Request[tuple["ListedGroup", ...]]):
    """All groups of a partition. It is answered at once, without waiting for commits. An empty
    filter matches all groups. Filters ignore case."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteRequest(GroupRequest["DeleteAnswer"]):
    """Each request deletes as many offsets as fit into a step. The last one deletes the group,
    too."""


@dataclass(frozen=True, slots=True)
class DeleteAnswer:
    error: ErrorCode
    is_over: bool = True
    """False: some offsets of the group are deleted, and the request has to be repeated."""


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
class OffsetCommitRequest(GroupRequest["OffsetCommitAnswer"]):
    generation: int
    member_id: str
    group_instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int | None = None
    """A retention time of the client's own, which only old versions of the API have."""
    knows_group_id_not_found: bool = True
    """Whether the client knows GROUP_ID_NOT_FOUND. Before version 9 it gets ILLEGAL_GENERATION."""
    producer: Producer | None = None
    """The offsets count when this producer's open transaction is committed (KIP-98)."""

    @property
    def names_nobody(self) -> bool:
        """Whether it says nothing of a member. Older clients say nothing in a transaction."""
        return self.generation < 0 and not self.member_id and self.group_instance_id is None


@dataclass(frozen=True, slots=True)
class OffsetCommitAnswer:
    errors: tuple[ErrorCode, ...]
    """One for each offset of the request, in its order."""


class TopicToFetch(NamedTuple):
    topic: str
    partitions: tuple[int, ...]
    topic_id: bytes = ZERO_UUID
    """Offsets of another topic with this name are left out. Zeros: the id is not known."""


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest(GroupRequest["OffsetFetchAnswer"]):
    topics: tuple[TopicToFetch, ...] | None  # None: all that the group has committed
    require_stable: bool = False
    """Wait for uncommitted commits instead of answering with the offsets before them, and answer
    with no offset that an open transaction may replace (KIP-447)."""
    member_id: str | None = None  # None: not a member
    member_epoch: int = -1  # of a member of the consumer protocol; -1: not known


class FetchedOffset(NamedTuple):
    topic: str
    partition: int
    offset: int = -1  # -1: none
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: bytes = ZERO_UUID
    error: ErrorCode = ErrorCode.NONE
    """UNSTABLE_OFFSET_COMMIT: an open transaction has another offset for the partition."""


@dataclass(frozen=True, slots=True)
class OffsetFetchAnswer:
    offsets: tuple[FetchedOffset, ...]
    """In the order of the request."""
    error: ErrorCode = ErrorCode.NONE


class DeletedTopic(NamedTuple):
    """A deleted topic. There may be a new topic with its name."""

    topic: str
    topic_id: bytes


class TopicsDeleted(NamedTuple):
    """News: the offsets of these topics have to be removed."""

    topics: tuple[DeletedTopic, ...]


class OffsetToDelete(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetDeleteRequest(GroupRequest["OffsetDeleteAnswer"]):
    offsets: tuple[OffsetToDelete, ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteAnswer:
    error: ErrorCode
    errors: tuple[ErrorCode, ...] = ()
    """One for each offset of the request, in its order."""
