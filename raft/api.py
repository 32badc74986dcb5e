"""The quorum as its users (controller, broker) see it. Types only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from raft.quorum import FeatureLevels
from stele.errors import ApiError, ErrorCode


class LeaderAndEpoch(NamedTuple):
    """The quorum's leader as a node knows it; ``leader_id`` is None while there is none."""

    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """One decision, committed: the values of the records of one batch, never a part of one."""

    base_offset: int
    epoch: int
    timestamp_ms: int
    records: tuple[bytes, ...]

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.records) - 1


class NotLeaderError(ApiError):
    """A proposal was refused: this node does not lead the epoch. Nothing was appended."""

    def __init__(self, leader: LeaderAndEpoch) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, f"the leader is {leader}")
        self.leader = leader


class QuorumListener(Protocol):
    """Called on the event loop, in log order, never re-entrantly. Must not block."""

    def on_commit(self, batches: Sequence[CommittedBatch], end_offset: int) -> None:
        """Everything below ``end_offset`` is committed: these batches, in order, each once per life
        of the node, and control batches, which are left out. There may be nothing but those.
        """
        ...

    def on_snapshot(self, end_offset: int, records: Sequence[bytes]) -> None:
        """Replace the state by the one that these records build from nothing, as of ``end_offset``.

        Comes first after a start from a snapshot, or when the leader's log no longer begins where
        this one ended; never while this node leads. Later batches begin at ``end_offset``.
        """
        ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None: ...

    def on_claimed(self, epoch: int) -> None:
        """This node leads ``epoch``, and everything committed before it has been delivered."""
        ...

    def on_resigned(self, epoch: int) -> None:
        """This node no longer leads ``epoch``, which it had claimed.

        Proposals that are not committed by now have no known outcome.
        """
        ...


class MetadataQuorum(Protocol):
    """A replica of ``__cluster_metadata``: a voter (controller) or an observer (broker)."""

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def high_watermark(self) -> int:
        """Offset after the last committed record; -1 while unknown."""
        ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def controller_features(self) -> Mapping[int, tuple[FeatureLevels, ...]]:
        """The features that each voter supports, by node id; empty for a voter that never reported
        any.

        This is the newest record of the voters, committed or not: a leader's next proposal stands
        behind it in the log. A leader also counts the voter that it is adding.
        """
        ...

    def propose(self, records: Sequence[bytes], *, epoch: int) -> int:
        """Append one batch (one decision) as leader of ``epoch``; return its base offset.

        Committed batches come back through the listener. Raises NotLeaderError, or ApiError with
        RECORD_LIST_TOO_LARGE: no replica could fetch the batch, and nothing was appended; with
        KAFKA_STORAGE_ERROR: the disk is full, and nothing was appended; or it has failed, and this
        node leads no more.
        """
        ...

    async def confirm_leadership(self, *, epoch: int) -> int:
        """Return the high watermark as of the call, once a majority has confirmed that this node
        led ``epoch`` then: nothing else was committed anywhere.

        Raises NotLeaderError, also when leadership is lost meanwhile. Only after ``on_claimed``.
        """
        ...

    def next_offset(self, *, epoch: int) -> int:
        """The base offset that the next ``propose`` will get. Raises NotLeaderError, also between
        the failure of this replica and the listeners' hearing of it."""
        ...
