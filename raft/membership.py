"""Changes of the quorum's voters, one voter at a time (Ongaro's dissertation, §4; KIP-853).

A change is a record in the log: it counts from the moment it is appended, and is certain when it is
committed. Any majority of a set and any of the next one have a voter in common, so that two leaders
cannot be elected in one epoch while replicas differ in which of the two they go by.
"""

from __future__ import annotations

from dataclasses import dataclass

from raft.quorum import ReplicaKey, Voter
from raft.replica import Replica
from stele.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class AddVoter:
    """Make an observer a voter, once it has caught up; give that up after ``timeout_s``."""

    voter: Voter  # its directory id is known
    timeout_s: float


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoter:
    """Give a voter another endpoint, or the directory id that was not known."""

    voter: Voter


VoterChange = AddVoter | RemoveVoter | UpdateVoter


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a change cannot be made now, for people, and with Kafka's error."""

    error: ErrorCode
    message: str


def refusal(replica: Replica, now: float, change: VoterChange) -> Refusal | None:
    """Why ``change`` cannot begin now; None when it can."""
    return Refusal(ErrorCode.UNSUPPORTED_VERSION, "voters cannot be changed yet")


def begin(replica: Replica, now: float, change: VoterChange) -> None:
    """Begin a change that is not refused."""
    if (refused := refusal(replica, now, change)) is not None:
        raise ValueError(refused.message)
