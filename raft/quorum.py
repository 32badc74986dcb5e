"""Who votes, and the arithmetic of majorities. Nothing here knows roles, messages or time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

NO_DIRECTORY = bytes(16)


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    """A replica's identity: its node id, and which disk it lives on (KIP-853).

    A node that comes back with an empty disk is another replica: it has forgotten its votes. A
    directory id of zeros is unknown and matches every directory of that node (static voters).
    """

    id: int
    directory_id: bytes = NO_DIRECTORY

    def matches(self, other: ReplicaKey) -> bool:
        if self.id != other.id:
            return False
        known = self.directory_id != NO_DIRECTORY and other.directory_id != NO_DIRECTORY
        return not known or self.directory_id == other.directory_id


class VoterSet:
    """An immutable set of voters, in order of their ids."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[ReplicaKey]) -> None:
        by_id = {voter.id: voter for voter in voters}
        self._voters = {voter: by_id[voter] for voter in sorted(by_id)}
        if not self._voters:
            raise ValueError("a quorum needs at least one voter")

    @classmethod
    def of_ids(cls, *ids: int) -> VoterSet:
        return cls([ReplicaKey(voter) for voter in ids])

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._voters)

    @property
    def majority(self) -> int:
        """How many voters decide: any two such groups have one in common."""
        return len(self._voters) // 2 + 1

    def __len__(self) -> int:
        return len(self._voters)

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self._voters.get(key.id)
        return voter is not None and voter.matches(key)

    def others(self, node_id: int) -> tuple[int, ...]:
        return tuple(voter for voter in self._voters if voter != node_id)

    def directory_id(self, node_id: int) -> bytes:
        return self._voters[node_id].directory_id


def majority_value(voters: VoterSet, values: Mapping[int, int]) -> int:
    """The greatest value that a majority has reached: the high watermark of durable end offsets.

    A voter without a value counts as -1.
    """
    descending = sorted((values.get(voter, -1) for voter in voters.ids), reverse=True)
    return descending[voters.majority - 1]


def majority_time(voters: VoterSet, times: Mapping[int, float]) -> float:
    """The latest moment since which every voter of some majority has been heard."""
    descending = sorted((times[voter] for voter in voters.ids), reverse=True)
    return descending[voters.majority - 1]


@dataclass(slots=True)
class VoteTally:
    """The votes of one election."""

    voters: VoterSet
    granted: set[int] = field(default_factory=set)  # disjoint from rejected: first answer counts
    rejected: set[int] = field(default_factory=set)

    def record(self, voter: int, granted: bool) -> None:
        if voter not in self.granted and voter not in self.rejected:
            (self.granted if granted else self.rejected).add(voter)

    @property
    def won(self) -> bool:
        return len(self.granted) >= self.voters.majority

    @property
    def lost(self) -> bool:
        """Whether so many refused that the rest are no majority."""
        return len(self.rejected) > len(self.voters) - self.voters.majority
