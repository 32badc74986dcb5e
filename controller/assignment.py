"""The replicas of a partition during a reassignment (KIP-455). Pure arithmetic.

While a partition is being reassigned it has the replicas of both sets: first the target's, in the
target's order, then those to be removed. The reassignment is complete when the whole target is in
the ISR. Example: on the way from [1, 2, 3] to [4, 2] the replicas are [4, 2, 1, 3], of which 4 is
being added, and 1 and 3 are being removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from metadata.directories import aligned
from metadata.partitions import PartitionState


@dataclass(frozen=True, slots=True)
class Assignment:
    """The four replica lists of a partition. ``PartitionState`` states their invariants."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    original: tuple[int, ...] = ()

    @classmethod
    def of(cls, state: PartitionState) -> Assignment:
        """The assignment that the partition has now."""
        return cls(
            state.replicas, state.adding_replicas, state.removing_replicas, state.original_replicas
        )

    @classmethod
    def towards(cls, state: PartitionState, target: Iterable[int]) -> Assignment:
        """The assignment that begins a reassignment to ``target``. If the target has the same
        brokers in another order, it takes effect at once.

        A target given while another reassignment is under way replaces it: only the new target
        and the original replicas stay. So the original replicas as the target cancel it.
        """
        wanted = tuple(target)
        original = state.original_replicas or state.replicas
        adding = tuple(sorted(set(wanted) - set(original)))
        removing = tuple(each for each in original if each not in wanted)
        if not adding and not removing:
            return cls(wanted)
        return cls((*wanted, *removing), adding, tuple(sorted(removing)), original)

    def applied_to(self, state: PartitionState) -> PartitionState:
        """The state with these replicas. Brokers that are no replicas leave ISR and ELR."""
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
            directories=aligned(self.replicas, state.replicas, state.directories),
        )


def may_complete(state: PartitionState, isr: Iterable[int]) -> bool:
    """Whether a reassignment is under way and its whole target is in ``isr``."""
    return state.is_reassigning and set(state.target_replicas) <= set(isr)
