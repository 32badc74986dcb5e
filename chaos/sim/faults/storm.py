"""A storm: faults of every kind against a simulated cluster, drawn from its seed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.aim import NAMES, Aims
from chaos.sim.faults.damage import Damage
from chaos.sim.laws.judged import JudgedCluster
from chaos.sim.world.disk import DiskFaults
from chaos.sim.world.process import ProcessEndedError

CALM_TIMEOUT_S = 180.0
_STOP_TIMEOUT_S = 30.0
_ROLL_TIMEOUT_S = 10.0

KINDS = (
    "kill",
    "cut_power",
    "cut_all_power",
    "stop",
    "pause",
    "isolate",
    "cut_one_way",
    "bridge",
    "jump_clock",
    "fail_syncs",
    "fail_reads",
    "fail_writes",
    "fill_disk",
    "exhaust_handles",
    "slow_disk",
    "spoil_sector",
    "flip_bit",
    "lose_file",
    "wipe_disk",
    "roll",
    "voters",
    "moves",
    "aimed",
    "conditions",
)
"""Of faults: acts; ``voters`` and ``moves``: what operators do meanwhile
(``chaos.sim.faults.operators``); and ``conditions``: bad networks, slow disks and torn pages
all the time."""


AIMED_AT = "aimed:"
ONE_AIM = tuple(f"{AIMED_AT}{name}" for name in NAMES)
"""Kinds, too, that no run draws by itself: of all aims only these."""


class Storm:
    """Life: ``draw_conditions``, ``rage``, ``calm``. ``counts`` tells what happened how often.

    What is synced is damaged only where others have it (``damage``): what the cluster promised, it
    must keep through all of this.
    """

    def __init__(
        self,
        cluster: JudgedCluster,
        *,
        pace_s: float = 2.0,
        kinds: Collection[str] = KINDS,
        limit: int | None = None,
    ) -> None:
        """``pace_s``: the mean time between two acts; ``kinds``: of those acts and conditions.

        After ``limit`` acts there are no more: the same seed with a lower limit is the same run up
        to there.
        """
        self.counts: Counter[str] = Counter()
        self.drawn = 0  # acts so far, also those that came to nothing
        self._cluster = cluster
        self._simulation = cluster.simulation
        self._rng = cluster.simulation.streams.stream("storm")
        self._pace_s = pace_s
        self._dark: set[int] = set()  # nodes without power
        self._paused: set[int] = set()
        self._broken: set[int] = set()  # nodes whose disk fails or is full
        self._slow: dict[int, tuple[float, float]] = {}  # nodes, and how slow their syncs were
        self._rolling = False
        self._calm = False
        self.damage = Damage(cluster, cluster.simulation.streams.stream("damage"))
        self.violations: list[str] = []
        for node in self._nodes:
            self.watch(node)
        self._kinds = frozenset(kinds)
        self._limit = limit
        acts: dict[Callable[[SimNode], bool], int] = {
            self._kill: 4,
            self._cut_power: 2,
            self._cut_all_power: 1,
            self._stop: 2,
            self._pause: 2,
            self._isolate: 2,
            self._cut_one_way: 2,
            self._jump_clock: 1,
            self._bridge: 1,
            self._fail_syncs: 1,
            self._fail_reads: 1,
            self._fail_writes: 1,
            self._fill_disk: 1,
            self._exhaust_handles: 1,
            self._spoil_sector: 2,
            self._slow_disk: 1,
            self._flip_bit: 2,
            self._lose_file: 2,
            self._wipe_disk: 1,
            self._roll: 1,
        }
        self._acts = [
            act for act, weight in acts.items() if _name(act) in self._kinds for _ in range(weight)
        ]
        if self._acts:  # what breaks is mended now and then
            self._acts += [self._heal] * 4 + [self._revive] * 7
        self._stopping: list[asyncio.Task[None]] = []
        self._aims = Aims(
            cluster,
            kill=self._kill,
            cut_power=self._cut_power,
            revive=self._revive_one,
            watch=self.watch,
            damage=self.damage,
            counts=self.counts,
            only=[kind.removeprefix(AIMED_AT) for kind in kinds if kind.startswith(AIMED_AT)],
        )

    @property
    def _nodes(self) -> list[SimNode]:
        return list(self._cluster.nodes.values())

    def watch(self, node: SimNode) -> None:
        """Every node is in the storm; a new one's failures are noted from now on, too."""
        node.on_failed = self._node_failed

    def draw_conditions(self) -> None:
        """How good the network and the disks are, for the whole storm."""
        rng, network = self._rng, self._simulation.fabric.faults
        if "conditions" not in self._kinds:
            return
        network.slow, network.slow_s = rng.choice([0, 0.01, 0.05]), rng.uniform(0, 1)
        network.lost_request = rng.choice([0, 0.02])
        network.lost_reply = rng.choice([0, 0.02])
        network.duplicate = rng.choice([0, 0.05])
        network.late_copy = rng.choice([0, 0.1, 0.5])
        # Across a room, or across a continent: then there is time for much to cross on its way.
        network.latency_s = rng.choice([network.latency_s, network.latency_s, (0.005, 0.03)])
        for node in self._nodes:
            disk = self._simulation.machine(node.host).disk.faults
            disk.cold_read = rng.choice([0, 0.3])
            if rng.random() < 0.2:
                disk.sync_s = (0.001, 0.05)
            disk.torn_page = rng.choice([0, 0.3])

    async def rage(self, duration_s: float) -> None:
        """One act after another, each on a node drawn by lot; and beside them, one aim after the
        other."""
        end = self._simulation.now + duration_s
        aiming = asyncio.get_running_loop().create_task(self._aim())
        while self._acts and self._may_act:
            pause_s = self._rng.uniform(0.0, 2 * self._pace_s)
            if self._simulation.now + pause_s >= end:
                break
            await asyncio.sleep(pause_s)
            if self._limit is not None and self.drawn >= self._limit:
                break  # an aim was the last one
            act, node = self._rng.choice(self._acts), self._target()
            self.drawn += 1
            self._simulation.note("storm", "act", f"{self.drawn} {_name(act)} {node.host}")
            if act(node):
                self.counts[_name(act)] += 1
        await asyncio.sleep(max(0.0, end - self._simulation.now))
        if not aiming.done():
            aiming.cancel()
        with suppress(asyncio.CancelledError):
            await aiming

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

    def _target(self) -> SimNode:
        """Half of the time somebody who matters: the active controller, or a partition's leader."""
        any_node, lot = self._rng.choice(self._nodes), self._rng.random()
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

    async def calm(self) -> None:
        """Mend everything and wait until every node is ready."""
        self._calm = True
        await asyncio.gather(*self._stopping)
        self._simulation.note("storm", "calm")
        network = self._simulation.fabric
        network.heal()
        network.faults.slow = network.faults.duplicate = network.faults.late_copy = 0
        network.faults.lost_request = network.faults.lost_reply = 0
        self._give_handles()
        self._end_slowness()  # votes that take longer than an election elect nobody
        end = self._simulation.now + CALM_TIMEOUT_S
        for node in self._nodes:
            self._revive_one(node)
        while not all(node.ready for node in self._nodes):
            for node in self._nodes:  # those that refuse to start have more to be mended
                self._revive_one(node)
            if self._simulation.now > end:
                late = {node.id: node.failure for node in self._nodes if not node.ready}
                raise AssertionError(f"not ready {CALM_TIMEOUT_S:g} s after the storm: {late}")
            await asyncio.sleep(0.5)

    def _node_failed(self, node: SimNode) -> None:
        """Nodes give up when their disk fails, or when they find what was damaged."""
        if node.id not in self._broken and node.id not in self.damage.metadata:
            self.violations.append(
                f"at {self._simulation.now:.6f}: {node.host} gave up: {node.failure}"
            )

    # ----------------------------------------------------------------------------------- acts

    def _kill(self, node: SimNode) -> bool:
        if not node.alive:
            return False
        node.kill()
        self._paused.discard(node.id)
        return True

    def _cut_power(self, node: SimNode) -> bool:
        if node.id in self._dark:
            return False
        self._simulation.power_off(node.host)
        self._dark.add(node.id)
        self._paused.discard(node.id)
        return True

    def _cut_all_power(self, _: SimNode) -> bool:
        hit = [node for node in self._nodes if self._cut_power(node)]
        return bool(hit)

    def _stop(self, node: SimNode) -> bool:
        """An orderly shutdown; it goes on beside further acts, which may catch it half-way."""
        if not node.ready or node.id in self._paused:
            return False
        self._stopping.append(asyncio.get_running_loop().create_task(self._stop_or_kill(node)))
        return True

    async def _stop_or_kill(self, node: SimNode) -> None:
        process = node.process
        assert process is not None
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await node.stop()
        except (TimeoutError, ProcessEndedError):
            if not process.dead:
                self._simulation.kill(process)

    def _pause(self, node: SimNode) -> bool:
        if not node.alive or node.id in self._paused:
            return False
        node.pause()
        self._paused.add(node.id)
        return True

    def _isolate(self, node: SimNode) -> bool:
        self._simulation.note("storm", "isolate", node.host)
        self._simulation.fabric.isolate(
            node.host, [other.host for other in self._nodes if other is not node]
        )
        return True

    def _cut_one_way(self, node: SimNode) -> bool:
        other = self._rng.choice(self._nodes)
        self._simulation.note("storm", "cut", f"{node.host} to {other.host}")
        self._simulation.fabric.cut(node.host, other.host)
        return True

    def _heal(self, _: SimNode) -> bool:
        self._simulation.note("storm", "heal")
        self._simulation.fabric.heal()
        self._end_slowness()
        self._give_handles()
        return True

    def _end_slowness(self) -> None:
        for node_id, sync_s in self._slow.items():
            self._faults(self._cluster.nodes[node_id]).sync_s = sync_s
        self._slow.clear()

    def _jump_clock(self, node: SimNode) -> bool:
        self._simulation.machine(node.host).clock.jump(self._rng.randint(-100_000, 100_000))
        return True

    def _bridge(self, node: SimNode) -> bool:
        """Two halves that reach each other through one node only."""
        others = [other.host for other in self._nodes if other is not node]
        half = len(others) // 2
        self._simulation.note("storm", "bridge", node.host)
        self._simulation.fabric.partition([*others[:half], node.host], [*others[half:], node.host])
        return True

    def _faults(self, node: SimNode) -> DiskFaults:
        return self._simulation.machine(node.host).disk.faults

    def _fail_syncs(self, node: SimNode) -> bool:
        """What is not on disk by now never gets there, though it can be read until a reboot."""
        self._faults(node).failing_sync = True
        self._broken.add(node.id)
        return True

    def _fail_reads(self, node: SimNode) -> bool:
        if not self.damage.fail_reads(node):
            return False
        self._broken.add(node.id)
        return True

    def _fail_writes(self, node: SimNode) -> bool:
        self._faults(node).failing_write = True
        self._broken.add(node.id)
        return True

    def _fill_disk(self, node: SimNode) -> bool:
        disk = self._simulation.machine(node.host).disk
        disk.faults.quota_bytes = disk.used_bytes() + self._rng.randint(0, 2000)
        self._broken.add(node.id)
        return True

    def _exhaust_handles(self, node: SimNode) -> bool:
        """Clients have taken the node's file handles, most of them or all. It runs on; one that is
        started anew begins with handles enough."""
        if not node.ready:
            return False
        self._simulation.note("storm", "no handles", node.host)
        self._faults(node).no_handle = self._rng.choice([0.2, 0.5, 1.0])
        return True

    def _give_handles(self) -> None:
        for node in self._nodes:
            self._faults(node).no_handle = 0.0

    def _spoil_sector(self, node: SimNode) -> bool:
        return self.damage.spoil_sector(node)

    def _slow_disk(self, node: SimNode) -> bool:
        faults = self._faults(node)
        self._slow.setdefault(node.id, faults.sync_s)
        faults.sync_s = 0.02, self._rng.choice([0.1, 0.5, 2.0])
        return True

    def _mend_disk(self, node: SimNode) -> None:
        """A new cable or an emptied disk, and a reboot: only that tells what was not written."""
        faults = self._faults(node)
        faults.failing_sync = faults.failing_read = faults.failing_write = False
        faults.quota_bytes = None
        self._broken.discard(node.id)
        if node.id not in self._dark:
            self._cut_power(node)

    def _flip_bit(self, node: SimNode) -> bool:
        self._kill(node)
        return self.damage.flip_bit(node)

    def _lose_file(self, node: SimNode) -> bool:
        self._kill(node)
        return self.damage.lose_file(node)

    def _wipe_disk(self, node: SimNode) -> bool:
        self._kill(node)
        return self.damage.wipe(node)

    def _roll(self, _: SimNode) -> bool:
        """An operator restarts one node after the other, beside whatever else happens."""
        if self._rolling:
            return False
        self._rolling = True
        self._stopping.append(asyncio.get_running_loop().create_task(self._restart_all()))
        return True

    async def _restart_all(self) -> None:
        for node in self._nodes:
            if node.ready and node.id not in self._paused:
                await self._stop_or_kill(node)
                await asyncio.sleep(self._rng.uniform(0.0, 1.0))
                self._revive_one(node)
                await self._wait_ready(node)
            if self._calm:
                break
        self._rolling = False

    async def _wait_ready(self, node: SimNode) -> None:
        end = self._simulation.now + _ROLL_TIMEOUT_S
        while not (node.ready or self._calm or self._simulation.now > end):
            await asyncio.sleep(0.1)

    def _revive(self, _: SimNode) -> bool:
        """Most of what is down comes back."""
        lucky = [node for node in self._nodes if self._rng.random() < 0.7]
        revived = [node for node in lucky if self._revive_one(node)]
        return bool(revived)

    def _revive_one(self, node: SimNode) -> bool:
        if node.id in self._broken:
            self._mend_disk(node)
        was_paused = node.id in self._paused
        self._paused.discard(node.id)
        if was_paused and node.alive:
            node.resume()
            return True
        if node.id in self._dark:
            self._dark.discard(node.id)
            self._simulation.power_on(node.host)
        if node.alive:
            return False
        if node.failure and node.id in self.damage.metadata:
            self.damage.replace_metadata(node)
        self._faults(node).no_handle = 0.0
        node.start()
        return True


def _name(act: Callable[[SimNode], bool]) -> str:
    return act.__name__.strip("_")
