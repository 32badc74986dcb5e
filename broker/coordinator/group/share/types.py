"""Requests to share groups and their answers, as values (KIP-932).

Fields have the same meaning as in Kafka's protocol. If an answer has an error, its other fields
have no meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.types import GroupRequest, GroupState
from stele.errors import ErrorCode

JOIN_EPOCH: Final = 0
"""The epoch of a member that joins, or that joins again with nothing."""

LEAVE_EPOCH: Final = -1
ASSIGNOR: Final = "simple"
"""The only assignor of share groups, by Kafka's name."""


class ShareSettings(NamedTuple):
    """What the configuration says of one share group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 200


@dataclass(frozen=True, slots=True)
class ShareHeartbeatRequest(GroupRequest["ShareHeartbeatAnswer"]):
    member_id: str
    """The client makes it."""
    member_epoch: int
    rack_id: str | None = None  # None: as in the heartbeat before
    topic_names: tuple[str, ...] | None = None  # likewise
    client_id: str = ""
    client_host: str = ""


class Initialization(NamedTuple):
    """Partitions whose state the share coordinator has to make before they can be assigned."""

    state_epoch: int
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class ShareHeartbeatAnswer:
    error: ErrorCode
    message: str | None = None
    """Why, where there is an error."""
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None
    """None: as in the answer before."""
    to_initialize: Initialization | None = None
    """Not for the client: the service passes it to the share coordinator, and then says
    ``InitializedRequest``. A later heartbeat asks again if that comes to nothing."""


@dataclass(frozen=True, slots=True)
class InitializedRequest(GroupRequest[None]):
    """The share coordinator has the state of these partitions."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class ShareDeletionAnswer:
    error: ErrorCode
    states: Partitions | None = None
    """The share partitions whose states have to be deleted first. None: the group is of another
    kind, or does not exist."""
    number: int = 0
    """The number of the deletion, for ``StatesDeletedRequest``."""


@dataclass(frozen=True, slots=True)
class ShareDeletionRequest(GroupRequest[ShareDeletionAnswer]):
    """The group is about to be deleted. It initializes no share partition before that, and members
    cannot join for a while. So the states can be deleted, and then the group."""


@dataclass(frozen=True, slots=True)
class StatesDeletionRequest(GroupRequest[ShareDeletionAnswer]):
    """As ``ShareDeletionRequest``, for the topics with these ids. The group stays, and members can
    join again when ``StatesDeletedRequest`` says that the deletion is over."""

    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class StatesDeletedRequest(GroupRequest[None]):
    """The share coordinator has no state of these topics any more."""

    topic_ids: frozenset[bytes]
    over: int | None = None
    """The number of the deletion, if it is over: no state is deleted any more. A deletion whose
    outcome is unknown is not over."""


@dataclass(frozen=True, slots=True)
class NewStatesAnswer:
    error: ErrorCode
    state_epoch: int = 0
    """No state of the group has had it."""


@dataclass(frozen=True, slots=True)
class NewStatesRequest(GroupRequest[NewStatesAnswer]):
    """The states of these share partitions are about to be set anew. Some may not exist yet. The
    group must be empty."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class SharePartitionsAnswer:
    error: ErrorCode
    partitions: Partitions | None = None
    """None: there is no such group."""


@dataclass(frozen=True, slots=True)
class SharePartitionsRequest(GroupRequest[SharePartitionsAnswer]):
    """The share partitions of a group whose states are initialized."""


class DescribedShareMember(NamedTuple):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    assigned: Partitions


@dataclass(frozen=True, slots=True)
class ShareDescribeRequest(GroupRequest["ShareDescribeAnswer"]):
    """A share group, in full."""


@dataclass(frozen=True, slots=True)
class ShareDescribeAnswer:
    error: ErrorCode
    group_id: str
    state: GroupState = GroupState.DEAD
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedShareMember, ...] = ()
