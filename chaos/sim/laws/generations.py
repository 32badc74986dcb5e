"""Who owns the partitions of a group, and who may act in its name."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Self

from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Scene
from chaos.sim.partition_name import PartitionName


class Membership(NamedTuple):
    """A member of one generation, as it knows itself."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None

    @property
    def owner(self) -> str:
        """A static member stays the same one with a new id."""
        return self.group_instance_id or self.member_id


class PartitionsHaveOneOwner(Law):
    """No partition has two owners in one generation of a group. Once a member has its assignment
    of a generation, nobody commits, and no heartbeat is taken, in an earlier one. The same holds of
    the process of a static member that another process has replaced."""

    name = "a generation gives a partition to one member"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._owners: dict[tuple[str, int, PartitionName], str] = {}
        self._newest: dict[str, int] = {}  # the newest generation with an assignment, by group
        self._replaced: set[tuple[str, str]] = set()  # (group, id of a replaced process)
        self._processes: dict[tuple[str, str], str] = {}  # by (group, instance): its last process

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def asks(self) -> int:
        """No moment is needed: generations have an order."""
        return 0

    def assigned(self, member: Membership, partitions: Collection[PartitionName], _: int) -> None:
        """A SyncGroup was answered with these partitions."""
        group_id, generation = member.group_id, member.generation
        self._newest[group_id] = max(generation, self._newest.get(group_id, generation))
        if member.group_instance_id is not None:
            instance = group_id, member.group_instance_id
            former = self._processes.get(instance, member.member_id)
            if former != member.member_id:
                self._replaced.add((group_id, former))
            self._processes[instance] = member.member_id
        for partition in partitions:
            self.looked += 1
            owner = self._owners.setdefault((group_id, generation, partition), member.owner)
            if owner != member.owner:
                self._scene.report(
                    f"group {group_id}: {partition} belongs to {owner} and to {member.owner} in "
                    f"generation {generation}"
                )

    def gave_up(self, member: Membership, partitions: Collection[PartitionName]) -> None:
        """The member is about to join again. The owners of its generation stay."""

    def is_over(self, member: Membership) -> bool:
        """Whether the coordinator has to refuse what is asked for now in this member's name."""
        newest = self._newest.get(member.group_id, member.generation)
        return member.generation < newest or (member.group_id, member.member_id) in self._replaced

    def has_lost(self, member: Membership, partition: PartitionName) -> bool:
        """Whether the coordinator has to refuse a commit of the partition that is sent now."""
        return self.is_over(member)

    def accepted(self, member: Membership, what: str, *, was_over: bool) -> None:
        """``was_over``: what ``is_over`` or ``has_lost`` said when the request was sent."""
        self.looked += was_over
        if was_over:
            self._scene.report(
                f"group {member.group_id}: {what} of {member.member_id} in generation "
                f"{member.generation} was taken, and {self._newest[member.group_id]} had begun "
                f"or the member was replaced"
            )

    def refused(self, *, was_over: bool) -> None:
        """A request was refused, which may have been all it could be."""
        self.looked += was_over
