"""Requests to share coordinators and their answers, as values (KIP-932).

Each request is about one share partition: a partition as one share group sees it. Fields have the
same meaning as in Kafka's protocol. If an answer has an error, its other fields have no meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.coordinator.step import Request
from broker.share.values import LetterPlan, StateBatch
from stele.errors import ErrorCode
from stele.ids import encode_uuid

NO_START: Final = -1
"""The start offset of a share partition that no leader has decided yet. In an update: it has not
changed."""
NO_COUNT: Final = -1
"""The number of completed deliveries is not known."""
NO_EPOCH: Final = -1


class StateKey(NamedTuple):
    """A share partition."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The name by which its coordinator is found, as in Kafka's FindCoordinator."""
        return f"{self.group_id}:{encode_uuid(self.topic_id)}:{self.partition}"


class ShareState(NamedTuple):
    """The persisted state of a share partition."""

    snapshot_epoch: int
    state_epoch: int
    """Rises when the group's offsets are set anew. A leader that has loaded an earlier one is
    fenced."""
    leader_epoch: int = NO_EPOCH
    """The epoch of the newest leader that has loaded the state. Earlier leaders are fenced."""
    start_offset: int = NO_START
    complete_count: int = NO_COUNT
    """Records from the start offset on whose delivery is complete (KIP-1226)."""
    create_ms: int = 0
    write_ms: int = 0
    batches: tuple[StateBatch, ...] = ()
    """Ascending, without overlaps, and from the start offset on."""
    letters: LetterPlan | None = None
    """None: no dead letter was ever written."""


@dataclass(frozen=True, slots=True)
class StateAnswer:
    error: ErrorCode
    message: str | None = None
    """Why, where there is an error."""
    state: ShareState | None = None
    """Only the answers to readers have one."""


@dataclass(frozen=True, slots=True)
class StateRequest(Request[StateAnswer]):
    """What the coordinator of one share partition is asked."""

    key: StateKey


@dataclass(frozen=True, slots=True)
class InitializeRequest(StateRequest):
    """Make the state, or set it anew with a higher state epoch."""

    state_epoch: int
    start_offset: int = NO_START
    """Without one, a state that exists stays as it is: a late repetition must not undo what was
    acknowledged since."""


@dataclass(frozen=True, slots=True)
class ReadRequest(StateRequest):
    """The leader of the partition loads the state. Its leader epoch fences all leaders before."""

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class WriteRequest(StateRequest):
    """The leader of the partition persists what became of records."""

    state_epoch: int
    leader_epoch: int
    start_offset: int = NO_START
    complete_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()
    letters: LetterPlan | None = None
    """None: the same."""


@dataclass(frozen=True, slots=True)
class SummaryRequest(StateRequest):
    """Read the state without fencing anybody. The answer's state has no batches."""


@dataclass(frozen=True, slots=True)
class ForgetRequest(StateRequest):
    """Delete the state. It need not exist."""


class TopicIdsDeleted(NamedTuple):
    """News: these topics are deleted, and the states of their partitions with them."""

    topic_ids: Iterable[bytes]
