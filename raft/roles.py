"""The state that a replica holds while it plays a role. Times: monotonic seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from raft.messages import SnapshotId
from raft.progress import Parking, Progress
from raft.quorum import ReplicaKey, Voter, VoterSet, VoteTally, majority_time
from raft.ready import Role
from raft.timing import Timing

NEVER = float("inf")


@dataclass(slots=True)
class Download:
    """A snapshot on its way here, in pieces."""

    snapshot: SnapshotId
    position: int = 0  # everything before has come
    complete: bool = False  # all of it has; the driver checks it, and nothing is asked for


@dataclass(slots=True)
class Fetching:
    """The state of the fetch loop by which a follower or an observer gets the log."""

    target: int  # the node to ask: the leader, or for an observer any node that may know it
    request_id: int | None = None  # at most one fetch is outstanding
    retry_at: float = 0.0
    failures: int = 0  # in a row
    download: Download | None = None  # while set, pieces of it are fetched and no records

    def failed(self, now: float, timing: Timing) -> None:
        self.request_id = None
        self.failures += 1
        self.retry_at = now + timing.retry(self.failures)

    def redirect(self, target: int) -> None:
        """Ask the named node at once. The pause after its failure still grows with all earlier
        ones."""
        self.target = target
        self.request_id = None
        self.download = None
        self.retry_at = 0.0

    def succeeded(self) -> None:
        self.request_id = None
        self.failures = 0
        self.retry_at = 0.0


@dataclass(slots=True)
class Asking:
    """A round of calls to peers, each repeated until it is answered."""

    due_at: dict[int, float]  # by peer, in order of ids; NEVER while a call is outstanding
    answered: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)  # in a row, by peer

    @classmethod
    def all(cls, peers: Sequence[int], now: float) -> Asking:
        return cls(dict.fromkeys(peers, now))

    @property
    def exhausted(self) -> bool:
        """Whether every peer has answered, or failed to at least once."""
        return all(peer in self.answered or peer in self.failures for peer in self.due_at)

    @property
    def deadline(self) -> float:
        return min(self.due_at.values(), default=NEVER)

    def due(self, now: float) -> list[int]:
        """The peers to call now; they count as called."""
        due = [peer for peer, at in self.due_at.items() if at <= now]
        for peer in due:
            self.due_at[peer] = NEVER
        return due

    def answer(self, peer: int) -> None:
        self.answered.add(peer)
        self.due_at[peer] = NEVER

    def fail(self, peer: int, now: float, timing: Timing) -> None:
        self.failures[peer] = self.failures.get(peer, 0) + 1
        self.due_at[peer] = now + timing.retry(self.failures[peer])


@dataclass(slots=True)
class Unattached:
    role: ClassVar = Role.UNATTACHED

    stand_at: float
    asked: bool = False  # a node that may know a leader that no known voter knows


@dataclass(slots=True)
class Follower:
    role: ClassVar = Role.FOLLOWER

    fetching: Fetching
    stand_at: float  # moved on by every contact with the leader
    last_contact: float  # a successful fetch or a BeginQuorumEpoch in this epoch; -inf: none yet
    suspects: bool = False  # the connection to the leader broke since last_contact


@dataclass(slots=True)
class Prospective:
    role: ClassVar = Role.PROSPECTIVE

    tally: VoteTally
    asking: Asking
    give_up_at: float
    last_contact: float  # with the epoch's leader, if it has one; else -inf


@dataclass(slots=True)
class Candidate:
    role: ClassVar = Role.CANDIDATE

    tally: VoteTally  # its own vote counts once it is durable
    asking: Asking
    stand_again_at: float
    lost: bool = False  # a late grant may still win it


@dataclass(frozen=True, slots=True)
class Transfer:
    """Leadership is about to go to ``to``: nothing is proposed until it does or time is up."""

    to: int
    give_up_at: float


@dataclass(slots=True)
class Adding:
    """A voter to be, until it has caught up (``raft.membership``)."""

    voter: Voter
    give_up_at: float
    round_end_offset: int  # it has to get there; the leader's end when the round began
    round_began_at: float


@dataclass(slots=True)
class ReadRound:
    """Every other voter is asked whether it still knows this leader (``raft.read_index``)."""

    asking: Asking
    calls: dict[int, int] = field(default_factory=dict)  # request id → voter, while out


@dataclass(slots=True)
class Reads:
    """The rounds of one leadership: one at a time, each for the reads that came before it."""

    confirmed: int = 0  # the rounds that a majority has answered
    wanted: int = 0  # the rounds that callers wait for; at most one more than the round under way
    round: ReadRound | None = None


@dataclass(slots=True)
class Leader:
    role: ClassVar = Role.LEADER

    start_offset: int  # of the epoch: the high watermark passes it before it advances at all
    progress: dict[int, Progress]  # of every voter of the latest set but this one, by id
    observers: dict[ReplicaKey, Progress] = field(default_factory=dict)
    parking: Parking = field(default_factory=Parking)
    transfer: Transfer | None = None
    adding: Adding | None = None
    reads: Reads = field(default_factory=Reads)

    def quorum_heard_at(self, voters: VoterSet) -> float:
        """Since when some majority, this replica included, has been heard; inf when alone."""
        return majority_time(
            voters,
            {
                voter: self.progress[voter].last_contact if voter in self.progress else NEVER
                for voter in voters.ids
            },
        )


@dataclass(slots=True)
class Resigned:
    role: ClassVar = Role.RESIGNED

    asking: Asking
    successors: tuple[int, ...]
    stand_at: float


@dataclass(slots=True)
class Observer:
    role: ClassVar = Role.OBSERVER

    fetching: Fetching
    doubt_at: float  # then the leader is unknown; moved on by every successful fetch
    last_contact: float = float("-inf")  # with the epoch's leader


RoleState = Unattached | Follower | Prospective | Candidate | Leader | Resigned | Observer
Fetcher = Follower | Observer  # gets the log from another: it has ``fetching``
Campaigner = Prospective | Candidate  # asks for votes: it has ``asking`` and ``tally``
Standby = Unattached | Follower | Resigned  # stands when nothing comes until ``stand_at``
