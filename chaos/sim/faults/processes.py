"""Processes and machines stop."""

from __future__ import annotations

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.fault import Family, Fault


class Kill(Fault):
    name, family, weight = "kill", Family.PROCESS, 4

    def strike(self, node: SimNode) -> bool:
        return self.field.kill(node)


class CutPower(Fault):
    name, family, weight = "cut_power", Family.PROCESS, 2

    def strike(self, node: SimNode) -> bool:
        return self.field.cut_power(node)


class CutAllPower(Fault):
    name, family, weight = "cut_all_power", Family.PROCESS, 1

    def strike(self, node: SimNode) -> bool:
        hit = [each for each in self.field.nodes if self.field.cut_power(each)]
        return bool(hit)


class Stop(Fault):
    """An orderly shutdown. It runs beside further acts, which may interrupt it."""

    name, family, weight = "stop", Family.PROCESS, 2

    def strike(self, node: SimNode) -> bool:
        if not node.ready or node.id in self.field.paused:
            return False
        self.field.go_on(self.field.stop(node))
        return True


class Pause(Fault):
    name, family, weight = "pause", Family.PROCESS, 2

    def strike(self, node: SimNode) -> bool:
        if not node.alive or node.id in self.field.paused:
            return False
        node.pause()
        self.field.paused.add(node.id)
        return True
