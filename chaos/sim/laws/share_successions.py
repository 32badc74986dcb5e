"""Where the leaders of share partitions begin (KIP-932)."""

from __future__ import annotations

from typing import Self

from broker.coordinator.share.types import ShareState, StateKey
from broker.share.machine import SharePartition
from broker.sharing.partition import LedSharePartition
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.decided_records import DecidedRecordsStayDecided
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.laws.share_coordinator_logs import ShareCoordinatorsReplayTheirLogs
from chaos.sim.laws.shared_records import SharedRecords


class ShareLeadersGoOn(Law):
    """A new leader of a share partition begins with the state that was committed before. Its start
    offset is not below the committed one, what is done there is done here, and no delivery count is
    lower.

    A leader is judged by what was committed when it was not there yet. What was committed later may
    be a decision that it takes for failed, since it got no answer.
    """

    name = "a leader of a share partition goes on where the committed state ends"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self, states: ShareCoordinatorsReplayTheirLogs, records: SharedRecords) -> None:
        self._states = states
        self._records = records
        self._before: dict[StateKey, ShareState] = {}  # committed, as of the last look
        # What was committed before each of them was there; None: it has been judged, or nothing.
        self._to_judge: dict[LedSharePartition, ShareState | None] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        records = scene.law(DecidedRecordsStayDecided).records
        return cls(scene.law(ShareCoordinatorsReplayTheirLogs), records)

    def look(self, cluster: SimCluster, report: Report) -> None:
        if not self._records.delivery_limits:
            return
        there: dict[LedSharePartition, ShareState | None] = {}
        for node in cluster.brokers.values():
            if node.broker is None:
                continue
            for led in node.broker.sharing.partitions:
                state = self._to_judge.get(led, self._before.get(led.key))
                if state is not None and led.machine is not None:
                    self._judge(led, led.machine, state, report)
                    state = None
                there[led] = state
        self._to_judge = there
        self._before = dict(self._states.committed)

    def _judge(
        self, led: LedSharePartition, machine: SharePartition, state: ShareState, report: Report
    ) -> None:
        if led.log.leader_epoch < state.leader_epoch:
            return  # it learns that with its first write
        self.looked += 1
        if machine.start_offset < state.start_offset:
            report(f"{led!r} begins at {machine.start_offset}, and {state} was committed")
        ranges = list(machine.ranges())
        for first, last, persisted, count in state.batches:
            for each in ranges:
                if each.last < first or last < each.first:
                    continue
                is_lost = persisted.is_final and not each.state.is_final
                if is_lost or (not each.state.is_final and each.count < count):
                    report(
                        f"{led!r} has {each.state.name} after {each.count} deliveries from "
                        f"{each.first} to {each.last}, and {state} was committed"
                    )
