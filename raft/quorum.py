"""Voters, and the arithmetic of majorities. Nothing here knows roles, messages or time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stele.ids import encode_uuid

NO_DIRECTORY = bytes(16)

FeatureLevels = tuple[str, int, int]
"""A feature by its name, and the least and the greatest level of it that a node supports."""


class ReplicaKey(NamedTuple):
    """A replica's identity: its node id, and which disk it lives on (KIP-853).

    A node that comes back with an empty disk is another replica: it has forgotten its votes. A
    directory id of zeros is unknown and matches every directory of that node.
    """

    id: int
    directory_id: bytes = NO_DIRECTORY

    def matches(self, other: ReplicaKey) -> bool:
        if self.id != other.id:
            return False
        known = self.directory_id != NO_DIRECTORY and other.directory_id != NO_DIRECTORY
        return not known or self.directory_id == other.directory_id


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of the quorum: its identity, its address, and the levels that it supports.

    ``endpoint`` (``host:port``, empty while it is not known) and ``features`` (by name, empty while
    it has reported none) are opaque to the core.
    """

    key: ReplicaKey
    endpoint: str = ""
    features: tuple[FeatureLevels, ...] = ()

    @property
    def id(self) -> int:
        return self.key.id

    def __str__(self) -> str:
        known = self.key.directory_id != NO_DIRECTORY
        return f"{self.id}@{self.endpoint}:{encode_uuid(self.key.directory_id) if known else '?'}"


class VoterSet:
    """An immutable set of voters, in order of their ids; equal when all of it is.

    Empty for a node that has not learned yet who the voters are. Such a node only observes.
    """

    __slots__ = ("_voters", "has_unknown_disks", "ids", "voters")

    ids: tuple[int, ...]
    voters: tuple[Voter, ...]
    has_unknown_disks: bool  # of some voter the directory id is not known

    def __init__(self, voters: Iterable[Voter]) -> None:
        by_id = {voter.id: voter for voter in voters}
        self._voters = {voter: by_id[voter] for voter in sorted(by_id)}
        self.ids = tuple(self._voters)
        self.voters = tuple(self._voters.values())
        self.has_unknown_disks = any(
            voter.key.directory_id == NO_DIRECTORY for voter in self.voters
        )

    @classmethod
    def of_ids(cls, *ids: int) -> VoterSet:
        """Voters whose ids only are known."""
        return cls([Voter(ReplicaKey(voter)) for voter in ids])

    @property
    def majority(self) -> int:
        """The number of voters that decide. Any two majorities of this set have a voter in common,
        and so have a majority of this set and one of a set with one voter more or less."""
        return len(self._voters) // 2 + 1

    def __len__(self) -> int:
        return len(self._voters)

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self._voters.get(key.id)
        return voter is not None and voter.key.matches(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(map(str, self.voters))})"

    def get(self, node_id: int) -> Voter | None:
        return self._voters.get(node_id)

    def with_voter(self, voter: Voter) -> VoterSet:
        """This set with ``voter`` added, or in the place of the one with its id."""
        return VoterSet([*self.voters, voter])

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(voter for voter in self.voters if voter.id != node_id)

    def others(self, node_id: int) -> tuple[int, ...]:
        return tuple(voter for voter in self._voters if voter != node_id)

    def directory_id(self, node_id: int) -> bytes:
        return self._voters[node_id].key.directory_id


def majority_value(voters: VoterSet, values: Mapping[int, int]) -> int:
    """The greatest value that a majority has reached: the high watermark of durable end offsets.

    A voter without a value counts as -1.
    """
    descending = sorted([values.get(voter, -1) for voter in voters.ids], reverse=True)
    return descending[voters.majority - 1]


def majority_time(voters: VoterSet, times: Mapping[int, float]) -> float:
    """The latest moment since which every voter of some majority has been heard."""
    descending = sorted(map(times.__getitem__, voters.ids), reverse=True)
    return descending[voters.majority - 1]


@dataclass(slots=True)
class VoteTally:
    """The votes of one election."""

    voters: VoterSet  # the candidate's latest: its log stands still as long as it stands
    granted: set[int] = field(default_factory=set)  # disjoint from rejected: first answer counts
    rejected: set[int] = field(default_factory=set)

    def record(self, voter: int, granted: bool) -> None:
        """Count an answer. Only voters of the set count. So a candidate outside of it does not
        count its own vote (Ongaro, §4.2.2)."""
        if voter in self.voters.ids and voter not in self.granted and voter not in self.rejected:
            (self.granted if granted else self.rejected).add(voter)

    @property
    def won(self) -> bool:
        return len(self.granted) >= self.voters.majority

    @property
    def lost(self) -> bool:
        """Whether so many voters refused that the others are no majority."""
        return len(self.rejected) > len(self.voters) - self.voters.majority
