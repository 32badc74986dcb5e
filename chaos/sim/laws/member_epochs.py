"""Who owns the partitions of a group of the consumer protocol (KIP-848), and who may act in its
name."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Self

from chaos.sim.laws.generations import Membership
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Scene
from chaos.sim.partition_name import PartitionName


class _Holder(NamedTuple):
    """A member that was told that it has a partition, and has not said that it gives it up."""

    epoch: int
    member: Membership
    at: int  # the moment when it was told
    since: int  # the epoch in which it was first told so


class MembersReconcile(Law):
    """No partition is given to two members in one member epoch of a group. When a member is told
    that it has a partition, whoever had it before has given it up or is no member any more: then
    nothing is taken that it asks for afterwards. Nobody commits a partition in a member epoch
    before the one in which the member was told that it has it (KIP-1251), and members of the
    classic protocol commit in their newest generation only. The member epoch of a member never goes
    back.

    The ``generation`` of a Membership is its member epoch here.

    A group that changes its protocol may begin with the first epoch again, when it has no members.
    There the moments decide who had a partition before, and answers that crossed prove nothing.
    """

    name = "a member epoch gives a partition to one member"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._holders: dict[tuple[str, PartitionName], _Holder] = {}
        self._newest: dict[tuple[str, str], int] = {}  # the last told epoch, by group and member id
        self._gone: set[tuple[str, str]] = set()  # (group, id of a former member)
        self._processes: dict[tuple[str, str], str] = {}  # by (group, instance): its last process
        self._moment = 0  # counts what was told
        self._restarting: set[str] = set()  # groups
        self._classic: set[tuple[str, str]] = set()  # (group, id of a member by JoinGroup)

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def may_restart(self, group_id: str) -> None:
        """The epochs of this group may begin again."""
        self._restarting.add(group_id)

    def asks(self) -> int:
        """The moment at which a member asks for an answer."""
        return self._moment

    def joins(self, member: Membership) -> None:
        """A member asks to join with nothing. It may have been one before."""
        identity = member.group_id, member.member_id
        self._gone.discard(identity)
        self._newest.pop(identity, None)

    def told(self, member: Membership, partitions: Collection[PartitionName], asked: int) -> None:
        """A heartbeat was answered: this is the member's epoch, and this is what it has.
        ``asked``: what ``asks`` said when the heartbeat was sent."""
        self._moment += 1
        identity = member.group_id, member.member_id
        before = self._newest.get(identity, member.generation)
        self.looked += 1
        if member.generation < before:
            self._report(member, f"its epoch was {before} before")
        self._newest[identity] = member.generation
        if member.group_instance_id is not None:
            instance = member.group_id, member.group_instance_id
            former = self._processes.get(instance, member.member_id)
            if former != member.member_id:
                self._gone.add((member.group_id, former))
            self._processes[instance] = member.member_id
        for partition in partitions:
            holder = self._holders.get((member.group_id, partition))
            since = member.generation
            if holder is not None and holder.member.member_id == member.member_id:
                since = holder.since
            self._holds(_Holder(member.generation, member, self._moment, since), partition, asked)

    def _holds(self, new: _Holder, partition: PartitionName, asked: int) -> None:
        self.looked += 1
        member = new.member
        place = member.group_id, partition
        holder = self._holders.get(place)
        if holder is not None and holder.member.owner != member.owner:
            if member.group_id in self._restarting:
                if holder.at > asked:
                    return  # whose answer is older?
                older = holder
            else:
                if holder.epoch == new.epoch:
                    self._report(member, f"{partition} belongs to {holder.member.member_id} too")
                older = min((holder, new), key=lambda each: each.epoch)
            self._gone.add((member.group_id, older.member.member_id))
            if older is new:
                return  # the answer comes from before its removal
        self._holders[place] = new

    def assigned(
        self, member: Membership, partitions: Collection[PartitionName], asked: int
    ) -> None:
        """A member of the classic protocol was told its share. Its generation is its epoch."""
        self._classic.add((member.group_id, member.member_id))
        self.told(member, partitions, asked)

    def gave_up(self, member: Membership, partitions: Collection[PartitionName]) -> None:
        """The member does not use these partitions any more, and may say so from now on."""
        for partition in partitions:
            holder = self._holders.get((member.group_id, partition))
            if holder is not None and holder.member.member_id == member.member_id:
                del self._holders[member.group_id, partition]

    def left(self, member: Membership) -> None:
        """A member was told that it has left."""
        self._gone.add((member.group_id, member.member_id))

    def is_gone(self, member: Membership) -> bool:
        """Whether the coordinator has to refuse a heartbeat that is sent now."""
        return (member.group_id, member.member_id) in self._gone

    def is_over(self, member: Membership) -> bool:
        """Whether the member has left, or knows a later epoch."""
        newest = self._newest.get((member.group_id, member.member_id), member.generation)
        return self.is_gone(member) or member.generation < newest

    def has_lost(self, member: Membership, partition: PartitionName) -> bool:
        """Whether the coordinator has to refuse a commit of the partition that is sent now."""
        identity = member.group_id, member.member_id
        if self.is_gone(member):
            return True
        if member.generation >= self._newest.get(identity, member.generation):
            return False
        if identity in self._classic:
            return True
        holder = self._holders.get((member.group_id, partition))
        if holder is None:
            return False  # it has given it up, and the coordinator may not know that yet
        if holder.member.member_id != member.member_id:
            return member.group_id not in self._restarting
        return member.generation < holder.since

    def accepted(self, member: Membership, what: str, *, was_over: bool) -> None:
        """``was_over``: what ``has_lost`` or ``is_gone`` said when the request was sent."""
        self.looked += was_over
        if was_over:
            self._report(member, f"{what} was taken, and the epoch or the membership was over")

    def refused(self, *, was_over: bool) -> None:
        """A request was refused, which may have been all it could be."""
        self.looked += was_over

    def _report(self, member: Membership, what: str) -> None:
        self._scene.report(
            f"group {member.group_id}, {member.member_id} in member epoch {member.generation}: "
            f"{what}"
        )
