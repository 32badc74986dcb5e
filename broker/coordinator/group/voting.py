"""The choice of the protocol that all members of a group use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from broker.coordinator.group.types import MemberProtocol

Ballot = Sequence[MemberProtocol]
"""The protocols that a member supports, the preferred one first."""


def supported_by_all(ballots: Iterable[Ballot], protocol: str) -> bool:
    return all(any(each.name == protocol for each in ballot) for ballot in ballots)


def elect_protocol(ballots: Sequence[Ballot]) -> str:
    """The protocol with the most votes. Each member votes for the first of its protocols that all
    members support. If two have as many votes, the one with the earlier vote wins. A member only
    joins if it has a protocol in common with all others, so there is always a candidate."""
    candidates = {each.name for each in ballots[0] if supported_by_all(ballots, each.name)}
    votes = Counter(
        next(each.name for each in ballot if each.name in candidates) for ballot in ballots
    )
    return max(votes, key=lambda name: votes[name])
