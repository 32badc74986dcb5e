"""Which members a share group has, and what they were assigned (KIP-932)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Scene
from chaos.sim.partition_name import PartitionName


class ShareMembersKeepTheirEpochs(Law):
    """The member epoch of a share group's member never goes back while the member stays. In one
    member epoch it has the same partitions all the time. A member that has left is no member.
    """

    name = "a member of a share group has one assignment in an epoch"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._epochs: dict[str, int] = {}  # by member id
        self._assigned: dict[tuple[str, int], frozenset[PartitionName]] = {}
        self._left: set[str] = set()

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def told(
        self, member: str, epoch: int, partitions: Collection[PartitionName] | None, *, joins: bool
    ) -> None:
        """A heartbeat was answered. ``partitions``: None if the answer has no assignment."""
        self.looked += 1
        before = self._epochs.get(member, 0)
        if member in self._left:
            self._report(member, "it has left, and is taken for a member")
        if epoch < before and not joins:
            self._report(member, f"it goes back from member epoch {before} to {epoch}")
        self._epochs[member] = epoch
        if partitions is None:
            return
        # A member that joins again may have nothing until the next target assignment.
        if joins:
            self._assigned.pop((member, epoch), None)
        # An assignment may lose a deleted topic within an epoch. The watched topics stay.
        assigned = self._assigned.setdefault((member, epoch), frozenset(partitions))
        if assigned != set(partitions):
            self._report(
                member,
                f"it has {sorted(partitions)} in member epoch {epoch}, and {sorted(assigned)} "
                "before",
            )

    def left(self, member: str) -> None:
        """The coordinator has confirmed that the member has left. It never comes back."""
        self._left.add(member)

    def _report(self, member: str, what: str) -> None:
        self._scene.report(f"{member} of a share group: {what}")
