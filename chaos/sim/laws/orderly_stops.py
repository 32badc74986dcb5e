"""Brokers that are stopped in order."""

from __future__ import annotations

from typing import Final, Self

from broker.membership.lifecycle import NO_CONTROLLER_S, BrokerState
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene

PATIENCE_S: Final = NO_CONTROLLER_S - 0.1
"""A broker waits at least so long for leave to stop. It is seen every 0.01 s at most."""


_STOPS: Final = (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN)


class StopsAreAskedFor(Law):
    """A broker that is stopped in order asks the controller for leave, so that others lead first.
    It serves until the controller has fenced it, or until it has waited in vain.

    A broker that fails stops without leave.
    """

    name = "brokers ask before they stop"
    cadence = Cadence.NODES
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        # By process: when it was last seen to serve, and not to ask for leave.
        self._ran_at: dict[str, float] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        now = cluster.simulation.now
        for node in self._scene.ran:
            broker = node.broker
            if broker is None or not broker.has_begun:
                continue
            if broker.serving and broker.state is BrokerState.RUNNING:
                self._ran_at[node.incarnation] = now
            elif broker.state in _STOPS and not broker.serving:
                ran_at = self._ran_at.pop(node.incarnation, None)
                if ran_at is not None and not node.failure:
                    self._look_at(node, now - ran_at, report)

    def _look_at(self, node: SimNode, waited_s: float, report: Report) -> None:
        image, broker = self._scene.metadata.newest, node.broker
        registration = None if image is None else image.broker(node.id)
        assert broker is not None  # the caller has seen it
        if registration is None or registration.broker_epoch != broker.replicas.broker_epoch:
            return  # it has nothing to ask for
        self.looked += 1
        if waited_s < PATIENCE_S and not registration.fenced:
            report(
                f"broker {node.id} stops {waited_s:.3f} s after it ran, and no controller has "
                "fenced it"
            )
