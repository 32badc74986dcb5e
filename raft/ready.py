"""The core's output: work to do, in a stated order.

The driver, for every ``Ready`` and in the order in which it got them:

1. stores ``pieces`` of a snapshot, and once one is complete checks it, off the loop, and calls
   ``snapshot_checked``; installs a snapshot in place of the whole log, durably; truncates, then
   appends (neither needs to be durable yet);
2. sends ``send`` and forgets the calls in ``cancel``;
3. makes ``hard_state`` and the log durable, then sends ``send_after_persist`` and calls
   ``persisted(ticket)``. One sync may serve several Readys: the last ticket stands for all.
4. delivers what is committed and tells of a change of role.

So a vote, an epoch or an acknowledgement cannot leave before it would survive a crash.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from raft.messages import Batch, Request, Response, SnapshotId
from raft.quorum import VoterSet


class Role(enum.Enum):
    UNATTACHED = "unattached"  # a voter that knows no living leader in its epoch
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"  # asks whether it would be voted for; has raised no epoch
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"  # led this epoch and never will again
    OBSERVER = "observer"  # no voter: fetches, never stands


@dataclass(frozen=True, slots=True)
class HardState:
    """The state that a replica must not forget in a crash.

    ``voted_id`` is given at most once per epoch and never taken back within it. ``leader_id`` is a
    convenience: losing it loses time only.
    """

    epoch: int = 0
    leader_id: int | None = None
    voted_id: int | None = None
    voted_directory_id: bytes | None = None


class Status(NamedTuple):
    """A replica's standing, as others may see it."""

    role: Role
    epoch: int
    leader_id: int | None


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request to a peer; hand its answer or its failure back under ``request_id``."""

    request_id: int
    to: int
    message: Request


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Bytes of the log to put into an answer: whole batches from ``offset``, one at least."""

    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a peer's request. ``read`` says what records the answer is to carry."""

    request_id: int
    message: Response
    read: ReadRange | None = None


Outbound = Call | Reply


@dataclass(frozen=True, slots=True)
class SnapshotPiece:
    """Bytes of a snapshot that is being fetched; at position 0 an earlier attempt is void."""

    snapshot: SnapshotId
    position: int
    data: bytes
    is_last: bool


@dataclass(slots=True)
class Ready:
    pieces: list[SnapshotPiece] = field(default_factory=list)
    install: SnapshotId | None = None
    """It was checked before. The log is empty then, and begins at its end."""
    truncate_to: int | None = None
    append: list[Batch] = field(default_factory=list)
    hard_state: HardState | None = None
    ticket: int = 0  # 0: nothing to persist, and then send_after_persist waits for earlier tickets
    send: list[Outbound] = field(default_factory=list)
    send_after_persist: list[Outbound] = field(default_factory=list)
    cancel: list[int] = field(default_factory=list)
    committed: tuple[int, int] | None = None  # [from, to): never overlaps an earlier one
    status: Status | None = None  # set when it changed
    voters: VoterSet | None = None  # the latest of the log, committed or not; set when it changed
    deadline: float = float("inf")  # call tick() then, unless a later Ready says otherwise
