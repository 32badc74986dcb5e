"""Requests to groups of the consumer protocol and their answers, as values.

Fields have the same meaning as in Kafka's protocol. If an answer has an error, its other fields
have no meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.consumer.records import ResolvedRegex
from broker.coordinator.group.share.types import ShareSettings
from broker.coordinator.group.types import GroupRequest, GroupState
from metadata.topics import Topics
from stele.errors import ErrorCode

JOIN_EPOCH: Final = 0
"""The epoch of a member that joins, or that joins again with nothing."""

LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member that leaves and will come back. It keeps its partitions."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatRequest(GroupRequest["ConsumerHeartbeatAnswer"]):
    """None: as in the heartbeat before."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1  # -1: as in the heartbeat before
    topic_names: tuple[str, ...] | None = None
    regex: str | None = None  # empty: none any more
    resolved_regex: ResolvedRegex | None = None
    """The topics that the regular expression stands for, of those that the client may see."""
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    makes_member_id: bool = True
    """Whether the client makes its member id itself. In version 0 the coordinator makes it."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatAnswer:
    error: ErrorCode
    message: str | None = None
    """Why, where there is an error."""
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None
    """None: as in the answer before."""
    stale_regex: str | None = None
    """The regular expression of the member, if it has to be resolved again."""


@dataclass(frozen=True, slots=True)
class ResolveRequest(GroupRequest[None]):
    """Have a group know which topics a regular expression of its members stands for by now."""

    regex: str
    resolved: ResolvedRegex


class DescribedConsumer(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    regex: str | None
    assigned: Partitions
    target: Partitions
    is_classic: bool


@dataclass(frozen=True, slots=True)
class ConsumerDescribeRequest(GroupRequest["ConsumerDescribeAnswer"]):
    """A group of the consumer protocol, in full."""


@dataclass(frozen=True, slots=True)
class ConsumerDescribeAnswer:
    error: ErrorCode
    group_id: str
    state: GroupState = GroupState.DEAD
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


class ConsumerSettings(NamedTuple):
    """What the configuration says of one group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class Metadata(Protocol):
    """What coordinators of consumer groups and share groups know of the cluster. It changes
    between events."""

    @property
    def topics(self) -> Topics: ...

    @property
    def names_version(self) -> int:
        """The version of the metadata that last changed what a regular expression stands for:
        topics were created or deleted, or ACLs changed."""
        ...

    def settings(self, group_id: str) -> ConsumerSettings: ...

    def share_settings(self, group_id: str) -> ShareSettings: ...


class _NothingKnown:
    """No topics, and Kafka's defaults."""

    topics = Topics()
    names_version = 0

    def settings(self, group_id: str) -> ConsumerSettings:
        return ConsumerSettings(45_000, 5_000, 1_000)

    def share_settings(self, group_id: str) -> ShareSettings:
        return ShareSettings()


NOTHING_KNOWN: Final[Metadata] = _NothingKnown()
