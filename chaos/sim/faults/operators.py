"""Operators change voters and move partitions while the cluster is in a storm."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.faults.moves import Moves
from chaos.sim.faults.storm import Storm
from chaos.sim.faults.throttles import Throttles
from stele.errors import ApiError
from stele.world import RpcError

SETTLE_TIMEOUT_S = 180.0
_PATIENCE_S = 15.0
_LEAST_VOTERS = 3  # no voter is taken from a smaller set
_EXTRA_CONTROLLERS = 2


class Operators:
    """Call ``start`` and ``stop``, and ``settle`` once everything is mended. ``counts`` has the
    number of each action."""

    def __init__(
        self,
        cluster: SimCluster,
        storm: Storm,
        partitions: Sequence[tuple[str, int]],
        *,
        kinds: Collection[str],
        pace_s: float,
        limit: int | None = None,
    ) -> None:
        """``kinds``: ``voters``, ``moves`` or both. ``limit``: the storm's; 0 means no changes."""
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._storm = storm
        self._pace_s = pace_s
        self._rng = cluster.simulation.rngs.of("operators")
        self._moves = Moves(cluster, partitions) if "moves" in kinds and limit != 0 else None
        self._throttles = Throttles(cluster, {topic for topic, _ in partitions})
        self._voters = "voters" in kinds and limit != 0
        self._first_voters = len(cluster.controllers)
        self._task: asyncio.Task[None] | None = None
        # The storm may take voters' disks only if these operators replace the lost voters.
        storm.damage.voters_may_be_lost = self._voters and self._first_voters >= _LEAST_VOTERS

    def start(self) -> None:
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def settle(self) -> None:
        """Replace lost voters, and wait until partitions stop moving. All nodes are up."""
        end = self._cluster.simulation.now + SETTLE_TIMEOUT_S
        while self._storm.damage.lost_voters:
            if self._cluster.simulation.now > end:
                lost = sorted(self._storm.damage.lost_voters)
                raise AssertionError(f"voters {lost} cannot be replaced")
            await self._replace_lost()
            await asyncio.sleep(0.5)
        if self._moves is not None:
            await self._throttles.ease()
            easing = asyncio.create_task(self._throttles.stay_eased())
            try:
                await self._moves.settle()
            finally:
                easing.cancel()
                await asyncio.gather(easing, return_exceptions=True)
            await self._throttles.end()
            self._tell_moves(self._moves)

    def _tell_moves(self, moves: Moves) -> None:
        self.counts["reassignments"] = moves.counts["start"]
        self.counts["reassignments cancelled"] = moves.counts["cancel"]
        for what, count in self._throttles.counts.items():
            self.counts[what] = count

    async def _work(self) -> None:
        while self._moves is not None or self._voters:
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * self._pace_s)
            if self._moves is not None and (not self._voters or self._rng.random() < 0.5):
                await self._throttles.change()
                await self._moves.move()
                self._tell_moves(self._moves)
            elif self._voters:
                await self._change_voters()

    # --------------------------------------------------------------------------------- voters

    async def _change_voters(self) -> None:
        if self._storm.damage.lost_voters:
            await self._replace_lost()
            return
        lot = self._rng.random()
        if lot < 0.3:
            await self._grow()
        elif lot < 0.55:
            await self._shrink()
        elif lot < 0.8:
            self._lose()
        else:
            await self._replace(self._rng.choice(sorted(self._cluster.controllers)))

    async def _grow(self) -> None:
        voters = self._cluster.voter_ids
        idle = [node_id for node_id in self._cluster.controllers if node_id not in voters]
        if not idle and len(self._cluster.controllers) < self._first_voters + _EXTRA_CONTROLLERS:
            node = self._cluster.add_controller()
            self._storm.watch(node)
            self.counts["controllers added"] += 1
            await asyncio.sleep(self._rng.uniform(0.5, 3.0))
            idle = [node.id]
        if idle:
            await self._add(self._rng.choice(idle))

    async def _shrink(self) -> None:
        voters = self._cluster.voter_ids
        if len(voters) > _LEAST_VOTERS:
            await self._remove(self._rng.choice(voters))

    def _lose(self) -> None:
        """Replace a disk by an empty one. The storm starts the node again at some time."""
        damage = self._storm.damage
        able = [node for node in self._cluster.controllers.values() if damage.may_lose_voter(node)]
        if able:
            damage.lose_voter(self._rng.choice(able))

    async def _replace_lost(self) -> None:
        for node_id in sorted(self._storm.damage.lost_voters):
            if await self._replace(node_id):
                self._storm.damage.lost_voters.discard(node_id)
                self.counts["voters replaced"] += 1

    async def _replace(self, node_id: int) -> bool:
        """Remove the voter and add it with its present disk. True if it surely is a voter then."""
        if not self._cluster.controllers[node_id].ready:
            return False
        if node_id in self._cluster.voter_ids:
            await self._remove(node_id)
        return await self._add(node_id)

    async def _add(self, node_id: int) -> bool:
        return await self._attempt("voters added", self._cluster.add_voter, node_id)

    async def _remove(self, node_id: int) -> bool:
        return await self._attempt("voters removed", self._cluster.remove_voter, node_id)

    async def _attempt(
        self, what: str, change: Callable[[int], Awaitable[None]], node_id: int
    ) -> bool:
        """Make one change. True if it was surely made."""
        self._cluster.simulation.note("operators", "change", f"{what}: {node_id}")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await change(node_id)
        except (ApiError, RpcError, OSError) as error:  # refused, or of unknown outcome
            self._cluster.simulation.note("operators", "failed", str(error))
            return False
        self.counts[what] += 1
        return True
