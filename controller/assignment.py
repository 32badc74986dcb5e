"""The replicas of a partition on their way from one set to another (KIP-455). Pure arithmetic.

While a partition is being reassigned it has the replicas of both sets: the target's first, in
its order, then those to be removed. The reassignment is complete when the whole target is in the
ISR.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from metadata.partitions import PartitionState


@dataclass(frozen=True, slots=True)
class Assignment:
    """The replicas of a partition; see ``PartitionState`` for what binds the four."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    original: tuple[int, ...] = ()

    @classmethod
    def of(cls, state: PartitionState) -> Assignment:
        """The present one."""
        return cls(
            state.replicas, state.adding_replicas, state.removing_replicas, state.original_replicas
        )

    @classmethod
    def towards(cls, state: PartitionState, target: Iterable[int]) -> Assignment:
        """The assignment on its way to ``target``; already there if only the order changes.

        A target given while another reassignment is under way replaces it: only the new target
        and the original replicas stay. A target of the original replicas therefore cancels it.
        """
        wanted = tuple(target)
        original = state.original_replicas or state.replicas
        adding = tuple(sorted(set(wanted) - set(original)))
        removing = tuple(each for each in original if each not in wanted)
        if not adding and not removing:
            return cls(wanted)
        return cls((*wanted, *removing), adding, tuple(sorted(removing)), original)

    def applied_to(self, state: PartitionState) -> PartitionState:
        """The state with these replicas. A broker that is no replica leaves every other list."""
        here = set(self.replicas)

        def staying(ids: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(each for each in ids if each in here)

        return replace(
            state,
            replicas=self.replicas,
            adding_replicas=self.adding,
            removing_replicas=self.removing,
            original_replicas=self.original,
            isr=staying(state.isr),
            elr=staying(state.elr),
            last_known_elr=staying(state.last_known_elr),
        )


def may_complete(state: PartitionState, isr: Iterable[int]) -> bool:
    """Whether ``isr`` has the whole target of a reassignment that is under way."""
    return state.is_reassigning and set(state.target_replicas) <= set(isr)
