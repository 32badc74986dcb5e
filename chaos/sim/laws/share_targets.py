"""How share groups spread partitions over their members (KIP-932)."""

from __future__ import annotations

from typing import Any, Self

from broker.coordinator.group.machine import GroupMachine
from broker.coordinator.group.share.types import (
    ShareDescribeAnswer,
    ShareDescribeRequest,
    SharePartitionsAnswer,
    SharePartitionsRequest,
)
from broker.coordinator.step import Request
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.decided_records import DecidedRecordsStayDecided
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.replayed_logs import START
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.laws.shared_records import SharedRecords
from stele.errors import ErrorCode


class _Asker:
    """A waiter that ignores its answer, which is in the step."""

    def answer(self, answer: object) -> None: ...

    def refuse(self, error: ErrorCode) -> None: ...


class SharePartitionsAreSpread(Law):
    """When all members of a share group have the newest epoch, each partition that the group has
    initialized has a member, and each member has a partition. The numbers of members of two
    partitions differ by one at most, and so do the numbers of partitions of two members.

    The members of the watched groups subscribe to the same topics.
    """

    name = "the partitions of a share group are spread over its members"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self, records: SharedRecords) -> None:
        self._records = records

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.law(DecidedRecordsStayDecided).records)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.brokers.values():
            if node.broker is None or not self._records.delivery_limits:
                continue
            for _, _, machine in node.broker.groups.each_active():
                for group_id in self._records.delivery_limits:
                    self._look_at(machine, group_id, report)

    def _look_at(self, machine: GroupMachine, group_id: str, report: Report) -> None:
        group = _asked(machine, ShareDescribeRequest(group_id))
        assert isinstance(group, ShareDescribeAnswer)
        epochs = {each.member_epoch for each in group.members} | {group.assignment_epoch}
        if not group.members or epochs != {group.epoch}:
            return
        initialized = _asked(machine, SharePartitionsRequest(group_id))
        assert isinstance(initialized, SharePartitionsAnswer)
        places = [
            (topic_id, number)
            for topic_id, numbers in (initialized.partitions or {}).items()
            for number in numbers
        ]
        owned = [
            {(topic_id, n) for topic_id, numbers in each.assigned.items() for n in numbers}
            for each in group.members
        ]
        if not places:
            return
        self.looked += 1
        sharers = [sum(place in each for each in owned) for place in places]
        sizes = [len(each) for each in owned]
        if (
            not min(sharers)
            or not min(sizes)
            or max(sharers) - min(sharers) > 1
            or max(sizes) - min(sizes) > 1
        ):
            report(
                f"share group {group_id} in epoch {group.epoch} has {sharers} members of its "
                f"partitions, and {sizes} partitions of its members"
            )


def _asked(machine: GroupMachine, request: Request[Any]) -> object:
    (reply,) = machine.take(request, _Asker(), START).replies
    return reply.answer
