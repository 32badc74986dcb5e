"""Checks all laws of the registry while a simulated cluster runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.registry import LAWS
from chaos.sim.laws.scene import Scene

L = TypeVar("L", bound=Law)

_LOOKS_BETWEEN: Final = {Cadence.EVERY_LOOK: 1, Cadence.SELDOM: 10, Cadence.RARELY: 50}


class Invariants:
    """Call ``check`` often. Laws compare each look with earlier ones; violations accumulate."""

    def __init__(self, cluster: SimCluster) -> None:
        self.looks = 0
        self.violations: list[str] = []
        self._cluster = cluster
        self._scene = Scene(cluster, self._violated)
        self._laws: list[Law] = []
        for kind in LAWS:
            law = kind.of(self._scene)
            self._scene.add(law)
            self._laws.append(law)
            if law.hears:
                cluster.simulation.fabric.wire.listen(law.hear, *law.hears)
        self._at_nodes = self._of(Cadence.NODES)
        self._at_quorum = self._of(Cadence.QUORUM)
        self._at_metadata = self._of(Cadence.METADATA)
        self._at_replicas = self._of(Cadence.REPLICAS)
        # The laws that look once in so many looks.
        self._in_turn = [(looks, self._of(cadence)) for cadence, looks in _LOOKS_BETWEEN.items()]

    def check(self) -> None:
        """Look at every node that has run something since the last look."""
        stirred = [node for node in self._cluster.nodes.values() if node.stirred()]
        if not stirred:
            return  # only the network or a client has run
        self.looks += 1
        self._look_at(stirred)
        for looks, laws in self._in_turn:
            if self.looks % looks == 0:
                self._look(laws)

    def check_everything(self) -> None:
        """Look at all nodes with all laws at once, as at the end of a run."""
        self._look_at(self._cluster.nodes.values())
        for _, laws in self._in_turn:
            self._look(laws)

    def law(self, kind: type[L]) -> L:
        return self._scene.law(kind)

    @property
    def looked(self) -> dict[str, int]:
        """How often each law has really looked at something, by the law's name."""
        return {law.name: law.looked for law in self._laws}

    def _look_at(self, stirred: Iterable[SimNode]) -> None:
        scene, controllers = self._scene, self._cluster.controllers
        scene.look_at_nodes(stirred)
        self._look(self._at_nodes)
        if any(node.id in controllers for node in scene.ran):
            scene.quorum.look(scene.ran)
            self._look(self._at_quorum)
            scene.look_at_metadata(scene.metadata.newest)
        else:
            scene.look_at_metadata(scene.metadata.seen)
        if scene.image_is_new:
            self._look(self._at_metadata)
        scene.look_at_replicas()
        if scene.leading or scene.following:
            self._look(self._at_replicas)

    def _of(self, cadence: Cadence) -> list[Law]:
        return [law for law in self._laws if law.cadence is cadence]

    def _look(self, laws: Iterable[Law]) -> None:
        for law in laws:
            law.look(self._cluster, self._violated)

    def _violated(self, what: str) -> None:
        self.violations.append(f"at {self._cluster.simulation.now:.6f}: {what}")
