"""Which of their protocols the members of a group go by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from broker.coordinator.group.member import Member


def supported_by_all(members: Iterable[Member], protocol: str) -> bool:
    return all(each.supports(protocol) for each in members)


def elect_protocol(members: Sequence[Member]) -> str:
    """Each member votes for the one that it likes best of those that all support. Among equals the
    one wins that was voted for first. There is a candidate, since nobody is let in else."""
    candidates = {
        each.name for each in members[0].protocols if supported_by_all(members, each.name)
    }
    votes = Counter(each.vote(candidates) for each in members)
    return max(votes, key=lambda name: votes[name])
