"""The choice of the protocol that all members of a group use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from broker.coordinator.group.member import Member


def supported_by_all(members: Iterable[Member], protocol: str) -> bool:
    return all(each.supports(protocol) for each in members)


def elect_protocol(members: Sequence[Member]) -> str:
    """The protocol with the most votes. Each member votes for the first of its protocols that all
    members support. If two have as many votes, the one with the earlier vote wins. A member only
    joins if it has a protocol in common with all others, so there is always a candidate."""
    candidates = {
        each.name for each in members[0].protocols if supported_by_all(members, each.name)
    }
    votes = Counter(each.vote(candidates) for each in members)
    return max(votes, key=lambda name: votes[name])
