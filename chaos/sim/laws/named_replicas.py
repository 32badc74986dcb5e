"""The replicas to which leaders send consumers."""

from __future__ import annotations

from typing import Final, Self

from broker.partition.machine import PartitionMachine
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene

_NOBODY: Final = -1


class NamedReplicasAreTheBest(Law):
    """A leader names a replica near the consumer that is in the ISR and has everything up to the
    consumer's offset. None of those near has more, by what the leader knows. It names one if there
    is one (KIP-392).

    Near are the brokers of another rack than the leader's. Where there are no racks, the law asks
    the leader as if all other brokers were near.
    """

    name = "consumers are sent to the best replica"
    cadence = Cadence.REPLICAS

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        racks: dict[str, set[int]] = {}
        for broker, node in sorted(scene.cluster.brokers.items()):
            if node.config.rack:
                racks.setdefault(node.config.rack, set()).add(broker)
        self._racks = [frozenset(brokers) for brokers in racks.values()]

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        everybody = frozenset(cluster.brokers)
        for node, replica in self._scene.leading:
            machine = replica.machine
            for brokers in self._racks or (everybody - {node.id},):
                if node.id not in brokers:
                    for offset in (machine.high_watermark, machine.log.end_offset):
                        self._check(machine, offset, brokers, report)

    def _check(
        self, machine: PartitionMachine, offset: int, brokers: frozenset[int], report: Report
    ) -> None:
        has = {
            broker: progress.end_offset
            for broker in sorted(brokers & set(machine.state.isr))
            if (progress := machine.progress_of(broker)) is not None
            and progress.eligible
            and progress.start_offset <= offset <= progress.end_offset
        }
        named = machine.preferred_replica(offset, brokers)
        self.looked += 1
        best = [broker for broker, end_offset in has.items() if end_offset == max(has.values())]
        if named not in (best or [_NOBODY]):
            report(
                f"{machine.state}: a consumer at {offset} near {sorted(brokers)}, whose known "
                f"ends are {has}, is sent to broker {named}"
            )
