"""The steps of a member of the consumer protocol from its partitions to its target (KIP-848).

Invariant: a member is assigned a partition only if no member owns it. The members own their
assigned partitions and those that they have not revoked yet. A partition keeps its assignment epoch
as long as its member owns it without a gap: the member alone may have committed its offsets since
that epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.consumer.records import CurrentAssignment, Epochs, MemberState

IsFree = Callable[[bytes, int], bool]
"""Whether no other member owns a partition, given its topic id and number."""


def reconcile(
    current: CurrentAssignment,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: IsFree,
) -> CurrentAssignment:
    """The next assignment of a member; the same one if it cannot go on.

    ``owned``: what the member says that it owns. None: it says nothing new.
    """
    match current.state:
        case MemberState.STABLE if current.member_epoch == target_epoch and is_subset(
            current.assigned, target
        ):
            return current
        case MemberState.UNREVOKED_PARTITIONS if _owns_any(owned, current.revoking):
            return current
    return _next(current, target, target_epoch, owned, is_free)


def _next(
    current: CurrentAssignment,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: IsFree,
) -> CurrentAssignment:
    kept = intersection(current.assigned, target)
    revoking = difference(current.assigned, kept)
    if revoking and _owns_any(owned, revoking):
        # The epoch rises when the member has revoked them.
        return CurrentAssignment(
            current.member_epoch,
            current.member_epoch,
            MemberState.UNREVOKED_PARTITIONS,
            kept,
            revoking,
            _epochs(current, current.assigned, current.member_epoch),
        )
    wanted = difference(target, kept)
    free = {
        topic_id: frozenset(number for number in numbers if is_free(topic_id, number))
        for topic_id, numbers in wanted.items()
    }
    is_complete = all(len(free[topic_id]) == len(wanted[topic_id]) for topic_id in wanted)
    return CurrentAssignment(
        target_epoch,
        current.member_epoch,
        MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        union(kept, free),
        epochs=_epochs(current, kept, target_epoch),
    )


def _epochs(current: CurrentAssignment, kept: Partitions, member_epoch: int) -> Epochs:
    """The epochs of the partitions that the member keeps, where they are not its new epoch."""
    known = {
        topic_id: {
            number: epoch
            for number in numbers
            if (epoch := current.owned_since(topic_id, number)) not in (None, member_epoch)
        }
        for topic_id, numbers in kept.items()
    }
    return {topic_id: epochs for topic_id, epochs in known.items() if epochs}


def _owns_any(owned: Partitions | None, revoking: Partitions) -> bool:
    return owned is None or bool(intersection(owned, revoking))


# ------------------------------------------------------------------------------- sets


def intersection(one: Partitions, other: Partitions) -> Partitions:
    both = {topic_id: one[topic_id] & other.get(topic_id, frozenset()) for topic_id in one}
    return {topic_id: numbers for topic_id, numbers in both.items() if numbers}


def difference(one: Partitions, other: Partitions) -> Partitions:
    left = {topic_id: one[topic_id] - other.get(topic_id, frozenset()) for topic_id in one}
    return {topic_id: numbers for topic_id, numbers in left.items() if numbers}


def union(one: Partitions, other: Partitions) -> Partitions:
    joined = dict(one)
    for topic_id, numbers in other.items():
        if numbers:
            joined[topic_id] = joined.get(topic_id, frozenset()) | numbers
    return joined


def is_subset(one: Partitions, other: Partitions) -> bool:
    return all(numbers <= other.get(topic_id, frozenset()) for topic_id, numbers in one.items())
