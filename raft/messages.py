"""The messages of the quorum, as values. The driver knows their form on the wire.

Every response carries what its sender knows of the epoch and its leader, so that any answer, also
a refusal, brings the asker up to date (KIP-595). This is what a response may change before its
error is looked at:

    VoteResponse               epoch and leader; with INVALID_VOTER_KEY only if it names a leader
    BeginQuorumEpochResponse   as a VoteResponse
    EndQuorumEpochResponse     as a VoteResponse
    FetchResponse              epoch and leader
    FetchSnapshotResponse      epoch and leader

That is sound among replicas of one quorum only: the epochs of two quorums have nothing to do with
each other, and an epoch never goes back. So the driver compares cluster ids before a message gets
here. A request of another cluster is refused, and the refusal of another cluster is the failure of
the call (``CallFailed``). ``None`` stands for "no leader known" and "no vote".
"""

from __future__ import annotations

from dataclasses import dataclass

from raft.quorum import VoterSet
from stele.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The control record at the start of an epoch: the leader, the voters, and those that voted for
    it."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VotersChange:
    """The control record that makes ``voters`` the quorum from its offset on (KIP-853).

    ``is_first``: no log had one before. Such a batch has two records, the feature level
    kraft.version 1 and then the voters; any other has one.
    """

    voters: VoterSet
    is_first: bool = False

    @property
    def count(self) -> int:
        return 2 if self.is_first else 1


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch of the log: opaque to the core but for its place, its epoch, and the voters.

    This replica's core gives a control batch as values to be encoded. Batches of a leader come as
    bytes, and the driver decodes a voters record among them into ``voters``.
    """

    base_offset: int
    count: int
    epoch: int
    payload: bytes | LeaderChange | VotersChange
    voters: VoterSet | None = None

    @property
    def new_voters(self) -> VoterSet | None:
        """The voters from this batch on, if it changes them."""
        return self.payload.voters if isinstance(self.payload, VotersChange) else self.voters

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An epoch and the offset after its last record."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotId:
    """A snapshot holds everything below ``end_offset``, whose last record is of ``epoch``."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Ask for a vote, or, with ``pre_vote``, whether a vote would be given (KIP-996)."""

    candidate_id: int
    candidate_directory_id: bytes
    voter_id: int
    voter_directory_id: bytes
    epoch: int  # of the election; a pre-vote names the epoch in which the candidate still is
    last_offset: int  # the candidate's log end offset
    last_epoch: int  # epoch of the record before it; 0 for an empty log
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteResponse:
    error: ErrorCode
    leader_id: int | None
    epoch: int
    granted: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """The leader of a new epoch makes itself known to a voter that has not fetched from it."""

    leader_id: int
    epoch: int
    voter_id: int
    voter_directory_id: bytes


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    error: ErrorCode
    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """The leader of an epoch gives up; the first successor need not wait to stand."""

    leader_id: int
    epoch: int
    preferred_successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    error: ErrorCode
    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Ask the leader for records. It acknowledges everything below ``fetch_offset`` as durable."""

    replica_id: int
    replica_directory_id: bytes
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int  # epoch of the record before fetch_offset; 0 for an empty log
    max_wait_ms: int
    max_bytes: int
    high_watermark: int  # as the fetcher knows it, -1 for unknown


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """Either an error, a divergence, a snapshot to load, or batches (which may be none)."""

    error: ErrorCode
    leader_id: int | None
    epoch: int
    high_watermark: int = -1
    log_start_offset: int = 0
    diverging: EpochEnd | None = None
    snapshot: SnapshotId | None = None
    batches: tuple[Batch, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """Ask the leader for a piece of a snapshot's bytes."""

    replica_id: int
    replica_directory_id: bytes
    epoch: int
    snapshot: SnapshotId
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    """``data`` stands at ``position`` of the snapshot, which has ``size`` bytes.

    From the core it comes without data: the driver reads up to ``max_bytes`` and fills it in.
    """

    error: ErrorCode
    leader_id: int | None
    epoch: int
    snapshot: SnapshotId | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""
    max_bytes: int = 0


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
)
Response = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
)


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A peer's request. The answer comes out as a ``Reply`` with the same ``request_id``."""

    request_id: int
    message: Request


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The answer to the ``Call`` with this ``request_id``."""

    request_id: int
    message: Response


@dataclass(frozen=True, slots=True)
class CallFailed:
    """The ``Call`` with this ``request_id`` got no answer: broken, refused or timed out."""

    request_id: int


Inbound = RequestReceived | ResponseReceived | CallFailed
