"""The deadlines of coordinators: sessions, rebalances, time-outs of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.coordinator.step import Machine
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report
from metadata.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC

_DUE_S: Final = 10.0
"""A coordinator tries again a second after a refusal of its log, and handles many deadlines in a
turn of the loop."""

_Place = tuple[str, str, int, int]  # the node's process, topic, partition, leader epoch


class DeadlinesPass(Law):
    """A deadline that is due is handled or put off while the log of its coordinator takes records.
    If the first deadline of a partition stayed due for ever, all later ones would wait for it."""

    name = "deadlines of coordinators pass"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self) -> None:
        # The first deadline of each coordinator, and when it was first seen to be due.
        self._due: dict[_Place, tuple[float, float]] = {}

    def look(self, cluster: SimCluster, report: Report) -> None:
        due, now = {}, cluster.simulation.now
        for node in cluster.brokers.values():
            process = node.process
            if node.broker is None or process is None or process.paused:
                continue
            now_ms = process.world.clock.monotonic() * 1000
            for place, machine in _writing(node):
                deadline_ms = machine.deadline_ms
                if deadline_ms is None or deadline_ms > now_ms:
                    continue
                self.looked += 1
                before, since = self._due.get(place, (deadline_ms, now))
                due[place] = (deadline_ms, since if before == deadline_ms else now)
                if now - due[place][1] > _DUE_S:
                    _, topic, number, _ = place
                    report(
                        f"a deadline of the coordinator of {topic}-{number} on broker {node.id} "
                        f"is due for {now - since:.0f} s, and the log takes records"
                    )
        self._due = due


def _writing(node: SimNode) -> Iterator[tuple[_Place, Machine]]:
    """The coordinators of a running broker whose logs take records."""
    broker = node.broker
    assert broker is not None
    for number, epoch, group in broker.groups.each_active():
        if broker.groups.may_write(number):
            yield (node.incarnation, GROUP_TOPIC, number, epoch), group
    for number, epoch, transaction in broker.transactions.each_active():
        if broker.transactions.may_write(number):
            yield (node.incarnation, TRANSACTION_TOPIC, number, epoch), transaction
