"""A storm: random faults of all kinds in a simulated cluster, drawn from its seed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress

from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import waits_for_restart
from chaos.sim.faults.aim import Aims
from chaos.sim.faults.conditions import Conditions
from chaos.sim.faults.directories import DyingDirectories
from chaos.sim.faults.field import Field
from chaos.sim.faults.registry import AIMED_AT, FAULTS, KINDS, ONE_AIM
from chaos.sim.laws.judged import JudgedCluster

CALM_TIMEOUT_S = 180.0

# The weights of mending among the acts, beside the weights of all faults.
_HEAL_WEIGHT, _REVIVE_WEIGHT = 4, 7
_LUCK = 0.7  # the chance of each node to come back in a revival


class Storm:
    """Call ``draw_conditions``, ``rage`` and ``calm`` in this order. ``counts`` tells what happened
    how often.

    Synced data is damaged only where other replicas have it (``damage``), since the cluster must
    keep its promises through the storm.
    """

    def __init__(
        self,
        cluster: JudgedCluster,
        *,
        pace_s: float = 2.0,
        kinds: Collection[str] = KINDS,
        limit: int | None = None,
        has_transactions: bool = False,
        has_directories: bool = False,
    ) -> None:
        """``pace_s``: the mean time between two acts. ``kinds``: the acts and conditions in use.
        ``has_transactions``: there is something for the aims at transactions.
        ``has_directories``: each broker has a second log directory, which may die.

        The storm ends after ``limit`` acts. The same seed with a lower limit gives the same run up
        to that act.
        """
        self.counts: Counter[str] = Counter()
        self.drawn = 0  # acts so far, also those that had nothing to do
        self.violations: list[str] = []
        self._cluster = cluster
        self._simulation = cluster.simulation
        self._field = Field(cluster)
        self._rng = self._field.rng
        self._pace_s = pace_s
        self._kinds = frozenset(kinds)
        self._limit = limit
        for node in self._field.nodes:
            self.watch(node)
        self._conditions = Conditions(self._field)
        self._faults = [fault(self._field) for fault in FAULTS]
        self._strikes: dict[str, Callable[[SimNode], bool]] = {
            "heal": self._heal,
            "revive": self._revive,
            **{fault.name: fault.strike for fault in self._faults},
        }
        # Each name stands here as often as its weight, so that a plain choice honours the weights.
        self._acts = [
            fault.name for fault in FAULTS if fault.name in self._kinds for _ in range(fault.weight)
        ]
        if self._acts:
            self._acts += ["heal"] * _HEAL_WEIGHT + ["revive"] * _REVIVE_WEIGHT
        self._has_directories = has_directories
        self._directories = DyingDirectories(self._field, self.counts)
        self.damage = self._field.damage
        self._aims = Aims(
            cluster,
            kill=self._field.kill,
            cut_power=self._field.cut_power,
            revive=self._field.revive,
            watch=self.watch,
            damage=self.damage,
            counts=self.counts,
            only=[kind.removeprefix(AIMED_AT) for kind in kinds if kind.startswith(AIMED_AT)],
            has_transactions=has_transactions,
        )

    def watch(self, node: SimNode) -> None:
        """Note the node's failures. Every node of the storm is watched, also one added later."""
        node.on_failed = self._node_failed

    def draw_conditions(self) -> None:
        """Draw the quality of the network and the disks for the whole storm."""
        if "conditions" in self._kinds:
            self._conditions.draw()

    async def rage(self, duration_s: float) -> None:
        """Do one act after another, each on a random node. Meanwhile do one aim after another."""
        end = self._simulation.now + duration_s
        loop = asyncio.get_running_loop()
        aside = [loop.create_task(self._aim())]
        if self._has_directories:
            aside.append(loop.create_task(self._lose_directories()))
        while self._acts and self._may_act:
            pause_s = self._rng.uniform(0.0, 2 * self._pace_s)
            if self._simulation.now + pause_s >= end:
                break
            await asyncio.sleep(pause_s)
            if self._limit is not None and self.drawn >= self._limit:
                break  # an aim was the last act
            self._act()
        await asyncio.sleep(max(0.0, end - self._simulation.now))
        for work in aside:
            if not work.done():
                work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    def _act(self) -> None:
        name, node = self._rng.choice(self._acts), self._target()
        self.drawn += 1
        self._simulation.note("storm", "act", f"{self.drawn} {name} {node.host}")
        self.strike(name, node)

    def strike(self, name: str, node: SimNode) -> bool:
        """Strike with one fault by name. False if there was nothing to do."""
        done = self._strikes[name](node)
        if done:
            self.counts[name] += 1
        return done

    @property
    def _may_act(self) -> bool:
        return self._limit is None or self.drawn < self._limit

    async def _aim(self) -> None:
        while "aimed" in self._kinds or any(kind in self._kinds for kind in ONE_AIM):
            await asyncio.sleep(self._aims.pause_s())
            if not self._may_act:
                break
            self.drawn += 1
            self.counts["aimed"] += 1
            await self._aims.next(self.drawn)

    async def _lose_directories(self) -> None:
        while True:
            await asyncio.sleep(self._directories.pause_s())
            if not self._may_act:
                break
            self.drawn += 1
            self._directories.act()

    def _target(self) -> SimNode:
        """A random node. Half of the time it is the active controller or a partition's leader."""
        any_node, lot = self._rng.choice(self._field.nodes), self._rng.random()
        if lot < 0.25:
            return self._cluster.active_controller or any_node
        if lot < 0.5 and (active := self._cluster.active_controller) is not None:
            assert active.node is not None
            assert active.node.controller is not None
            leaders = [
                state.leader
                for _, _, state in active.node.controller.image.sorted_partitions()
                if state.leader >= 0
            ]
            return self._cluster.brokers[self._rng.choice(leaders)] if leaders else any_node
        return any_node

    def _node_failed(self, node: SimNode) -> None:
        """A node may give up only if its disk fails or its metadata log was damaged."""
        if node.id not in self._field.broken and node.id not in self.damage.metadata:
            self.violations.append(
                f"at {self._simulation.now:.6f}: {node.host} gave up: {node.failure}"
            )

    # -------------------------------------------------------------------------------- mending

    def _heal(self, _: SimNode) -> bool:
        self._simulation.note("storm", "heal")
        self._simulation.fabric.heal()
        self._mend()
        return True

    def _mend(self) -> None:
        for fault in self._faults:
            fault.mend()

    def _revive(self, _: SimNode) -> bool:
        """Bring most of the nodes that are down back."""
        lucky = [node for node in self._field.nodes if self._rng.random() < _LUCK]
        revived = [node for node in lucky if self._field.revive(node)]
        return bool(revived)

    async def calm(self) -> None:
        """Mend everything and wait until every node is ready."""
        field = self._field
        field.is_calm = True
        await field.finish()
        self._simulation.note("storm", "calm")
        self._simulation.fabric.heal()
        self._conditions.mend()
        self._directories.mend()
        self._mend()  # also slow disks: a vote that takes longer than an election elects nobody
        end = self._simulation.now + CALM_TIMEOUT_S
        for node in field.nodes:
            if waits_for_restart(node):
                field.kill(node)
            field.revive(node)
        while not all(node.ready for node in field.nodes):
            for node in field.nodes:  # a node that refuses to start needs more mending
                field.revive(node)
            if self._simulation.now > end:
                late = {node.id: node.failure for node in field.nodes if not node.ready}
                raise AssertionError(f"not ready {CALM_TIMEOUT_S:g} s after the storm: {late}")
            await asyncio.sleep(0.5)
