"""Compares the memory of share coordinators with their logs, and with what members were told."""

from __future__ import annotations

from typing import Self

from broker.coordinator.share.machine import ShareMachine
from broker.coordinator.share.types import ShareState, StateKey
from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import online
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.replayed_logs import replays
from chaos.sim.laws.scene import Report
from metadata.internal_topics import SHARE_TOPIC


class ShareCoordinatorsReplayTheirLogs(Law):
    """A share coordinator has the same states as a machine that replays its log, at any moment
    between two turns of its broker. From one coordinator of a share partition to the next, the
    committed state epoch, leader epoch and start offset never go back, and a record that is done
    stays done."""

    name = "share coordinators replay their logs"
    cadence = Cadence.RARELY
    proof = Proof.CAMPAIGN

    def __init__(self) -> None:
        self._compared: dict[str, int] = {}  # the end of each log at the last comparison
        self.committed: dict[StateKey, ShareState] = {}
        """The newest committed state of each share partition that was compared."""

    @classmethod
    def of(cls, scene: object) -> Self:
        return cls()

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node, replica in online(cluster):
            if replica.topic != SHARE_TOPIC or not replica.machine.is_leader:
                continue
            assert node.broker is not None
            for number, epoch, machine in node.broker.sharing.coordinators.each_active():
                if (number, epoch) == (replica.id.partition, replica.machine.leader_epoch):
                    self._compare(node, replica, machine, report)

    def _compare(
        self, node: SimNode, replica: Replica, machine: ShareMachine, report: Report
    ) -> None:
        end_offset, key = replica.log.end_offset, f"{node.incarnation} {replica!r}"
        if self._compared.get(key) == end_offset:
            return
        twin = ShareMachine(lambda topic_id, number: True)
        if not replays(twin, node, replica):
            return
        self._compared[key] = end_offset
        states, expected = dict(machine.states()), dict(twin.states())
        self.looked += bool(expected)
        if states != expected:
            report(
                f"{replica!r} on broker {node.id} ends at {end_offset}: its share coordinator has "
                f"{states}, and its log {expected}"
            )
        if replica.machine.high_watermark == end_offset:
            for name, state in states.items():
                self._check_progress(name, state, report)

    def _check_progress(self, key: StateKey, state: ShareState, report: Report) -> None:
        before = self.committed.get(key)
        self.committed[key] = state
        if before is None or state.state_epoch > before.state_epoch:
            return
        self.looked += 1
        epochs = state.state_epoch, state.leader_epoch
        if (
            state.state_epoch < before.state_epoch
            or state.leader_epoch < before.leader_epoch
            or state.start_offset < before.start_offset
            or _done(before, state.start_offset) - _done(state, state.start_offset)
        ):
            report(
                f"{key.coordinator_key} goes back from {before} to {state} in the epochs {epochs}"
            )


def _done(state: ShareState, start_offset: int) -> set[int]:
    """The records from a start offset on that are done."""
    return {
        offset
        for each in state.batches
        if each.state.is_final
        for offset in range(max(each.first, start_offset), each.last + 1)
    }
