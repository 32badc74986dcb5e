"""The tools of aims: strikes, cuts, waits, and listeners on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chaos.sim.cluster.methods import ALTER_PARTITION
from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.damage import Damage
from chaos.sim.laws.judged import JudgedCluster
from chaos.sim.laws.reads import ReadsAreLinearizable
from chaos.sim.world.wire import Hold, Listener, Said

_POLL_S = 0.002


class AimTools:
    """The base class of aims. It does nothing by itself."""

    def __init__(
        self,
        cluster: JudgedCluster,
        *,
        kill: Callable[[SimNode], bool],
        cut_power: Callable[[SimNode], bool],
        revive: Callable[[SimNode], bool],
        watch: Callable[[SimNode], None],
        damage: Damage,
    ) -> None:
        self._cluster = cluster
        self._fabric = cluster.simulation.fabric
        self._rng = cluster.simulation.rngs.of("aim")
        self._kill = kill
        self._cut_power = cut_power
        self._revive = revive
        self._watch = watch
        self._damage = damage
        self._reads = cluster.invariants.law(ReadsAreLinearizable)
        self._controllers = list(cluster.controllers.values())  # without those added later

    @property
    def _lag_s(self) -> float:
        return next(iter(self._cluster.brokers.values())).config.replica_lag_time_max_ms / 1000

    async def _wait(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self._rng.uniform(least_s, most_s))

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether the condition became true in time."""
        end = self._cluster.simulation.now + timeout_s
        while not condition():
            if self._cluster.simulation.now >= end:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def _soon(self, action: Callable[[SimNode], object], node: SimNode) -> None:
        """Act from outside all processes. A listener is called within a process, which may be the
        one that dies."""
        self._cluster.simulation.scheduler.at(0.0, action, node)

    def _strike(self, node: SimNode) -> None:
        (self._kill if self._rng.random() < 0.6 else self._cut_power)(node)

    def _strike_shortly(self, node: SimNode) -> None:
        self._strike(node)
        back_s = self._rng.uniform(0.0, 0.05)
        self._cluster.simulation.scheduler.at(back_s, self._revive, node)

    @contextmanager
    def _listening(self, listener: Listener) -> Iterator[None]:
        self._fabric.wire.listen(listener)
        try:
            yield
        finally:
            self._fabric.wire.ignore(listener)

    @contextmanager
    def _holding(self, hold: Hold) -> Iterator[None]:
        holds = self._fabric.wire.holds
        holds.append(hold)
        try:
            yield
        finally:
            holds.remove(hold)

    @contextmanager
    def _echoing(self, leader: SimNode) -> Iterator[None]:
        """Every proposal of an ISR that this leader sends arrives once more, later."""

        def echo(said: Said) -> float | None:
            if said.method != ALTER_PARTITION or said.source != leader.host:
                return None
            return self._rng.uniform(0.3, 4.0)

        echoes = self._fabric.wire.echoes
        echoes.append(echo)
        try:
            yield
        finally:
            echoes.remove(echo)

    def _part(self, some: list[SimNode], others: list[SimNode]) -> None:
        for one in some:
            for other in others:
                if one is not other:
                    self._fabric.cut(one.host, other.host)
                    self._fabric.cut(other.host, one.host)

    def _join(self, some: list[SimNode], others: list[SimNode]) -> None:
        for one in some:
            for other in others:
                self._fabric.heal(one.host, other.host)
                self._fabric.heal(other.host, one.host)

    def _slow_down_quorum(self, extra_s: float) -> None:
        for one in self._controllers:
            for other in self._controllers:
                if one is not other:
                    self._fabric.slow_down(one.host, other.host, extra_s)

    def _node(self, host: str) -> SimNode:
        return next(node for node in self._cluster.nodes.values() if node.host == host)
