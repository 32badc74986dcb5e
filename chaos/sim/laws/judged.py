"""A simulated cluster whose laws are checked while it runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.fenced_brokers import FencedBrokersAcknowledgeNothing
from chaos.sim.laws.invariants import Invariants
from chaos.sim.world.simulation import SimulationFailedError

T = TypeVar("T")

_LOOK_EVERY_S = 0.01


class JudgedCluster(SimCluster):
    """Fails a run that breaks a law."""

    def __init__(self, seed: int, **options: Any) -> None:
        """``options``: as ``SimCluster``."""
        super().__init__(seed, **options)
        self.invariants = Invariants(self)
        self.client.on_acknowledged = self.invariants.law(
            FencedBrokersAcknowledgeNothing
        ).acknowledged

    def run(self, scenario: Callable[[JudgedCluster], Coroutine[Any, Any, T]]) -> T:
        """Start everything and run the scenario to its end. Check the invariants often."""
        # The look comes at fixed times, even while nothing runs.
        self.simulation.scheduler.watch(_LOOK_EVERY_S, self.invariants.check)
        result = super().run(lambda _: scenario(self))
        if self.invariants.violations:
            raise SimulationFailedError(
                f"seed {self.simulation.seed}: " + "; ".join(self.invariants.violations[:5])
            )
        return result
