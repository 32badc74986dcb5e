"""The network is cut."""

from __future__ import annotations

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.fault import Family, Fault


class Isolate(Fault):
    """One machine reaches no other, and none reaches it."""

    name, family, weight = "isolate", Family.NETWORK, 2

    def strike(self, node: SimNode) -> bool:
        simulation = self.field.simulation
        simulation.note("storm", "isolate", node.host)
        others = [other.host for other in self.field.nodes if other is not node]
        simulation.fabric.isolate(node.host, others)
        return True


class CutOneWay(Fault):
    """What one machine sends to another does not arrive."""

    name, family, weight = "cut_one_way", Family.NETWORK, 2

    def strike(self, node: SimNode) -> bool:
        simulation, other = self.field.simulation, self.field.rng.choice(self.field.nodes)
        simulation.note("storm", "cut", f"{node.host} to {other.host}")
        simulation.fabric.cut(node.host, other.host)
        return True


class Bridge(Fault):
    """Two halves of the cluster share only one node, which reaches both."""

    name, family, weight = "bridge", Family.NETWORK, 1

    def strike(self, node: SimNode) -> bool:
        simulation = self.field.simulation
        others = [other.host for other in self.field.nodes if other is not node]
        half = len(others) // 2
        simulation.note("storm", "bridge", node.host)
        simulation.fabric.partition([*others[:half], node.host], [*others[half:], node.host])
        return True
