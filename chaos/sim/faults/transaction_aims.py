"""Aims at transactions: nodes die or are cut off at the moments in which the outcome of one is
decided and not known everywhere."""

from __future__ import annotations

from broker.coordinator.transaction.machine import TransactionMachine
from broker.coordinator.transaction.types import TransactionState
from broker.replication.replica import Replica, ReplicaState
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import hosted_by
from chaos.sim.faults.aim_tools import AimTools

TRANSACTION_NAMES = (
    "coordinator_dies_deciding",
    "coordinator_dies_marking",
    "marked_leader_dies",
    "marked_leader_cut_off",
    "coordinator_cut_off",
    "verdicts_overtaken",
    "marker_lost",
)
"""Each is a method of ``TransactionAims``. Only runs with transactions draw them."""

_PATIENCE_S = 4.0
_OVERTAKING_S = 3.0
_OPEN = (TransactionState.ONGOING,)
_DECIDED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class TransactionAims(AimTools):
    """They wait for a moment by looking at the coordinators' memory."""

    async def _coordinator_dies_deciding(self) -> None:
        """The coordinator dies when it has decided, before anybody else can know."""
        node = await self._until_one_has(_DECIDED)
        if node is not None:
            self._strike(node)
            await self._wait(0.0, 1.0)
            self._revive(node)

    async def _coordinator_dies_marking(self) -> None:
        """The coordinator dies when some of the markers are written."""
        node = await self._until_one_has(_DECIDED)
        if node is not None:
            await self._wait(0.001, 0.03)
            self._strike(node)
            await self._wait(0.0, 2.0)
            self._revive(node)

    async def _marked_leader_dies(self) -> None:
        """Another broker dies while markers are written, perhaps a leader that gets one of them."""
        node = await self._until_one_has(_DECIDED)
        others = [each for each in self._running if each is not node]
        if node is not None and others:
            self._strike_shortly(self._rng.choice(others))

    async def _marked_leader_cut_off(self) -> None:
        """A leader has a marker that its followers may not have. It is cut off until another one
        leads, and comes back with what it has."""
        found: list[SimNode] = []

        def has() -> bool:
            found[:] = [node for node in self._running if any(map(_is_undecided, hosted_by(node)))]
            return bool(found)

        if not await self._until(has, _PATIENCE_S):
            return
        node = self._rng.choice(found)
        others = [each for each in self._cluster.nodes.values() if each is not node]
        self._part([node], others)
        await self._wait(1.0, 12.0)
        self._join([node], others)

    async def _coordinator_cut_off(self) -> None:
        """The coordinator of an open transaction is cut off until another one has taken over, and
        comes back with what it knew."""
        node = await self._until_one_has(_OPEN)
        if node is None:
            return
        others = [each for each in self._cluster.nodes.values() if each is not node]
        self._part([node], others)
        await self._wait(1.0, 12.0)
        self._join([node], others)

    async def _verdicts_overtaken(self) -> None:
        """Some messages of a coordinator take long. What it sends later to the same broker on
        another connection overtakes them: markers overtake verdicts on their transaction."""
        node = await self._until_one_has(_OPEN)
        if node is None:
            return
        others = [each for each in self._cluster.brokers.values() if each is not node]
        other = self._rng.choice(others)
        end = self._cluster.simulation.now + _OVERTAKING_S
        while self._cluster.simulation.now < end:
            self._fabric.slow_down(node.host, other.host, self._rng.uniform(0.01, 0.3))
            try:
                await self._wait(0.001, 0.004)
            finally:
                self._fabric.slow_down(node.host, other.host, 0.0)
            await self._wait(0.001, 0.01)

    @property
    def _running(self) -> list[SimNode]:
        return [each for each in self._cluster.brokers.values() if each.broker is not None]

    async def _until_one_has(self, states: tuple[TransactionState, ...]) -> SimNode | None:
        """A coordinator's node with a transaction in one of these states."""
        found: list[SimNode] = []

        def has() -> bool:
            found[:] = [
                node
                for node in self._running
                if any(_count(machine, states) for machine in _machines(node))
            ]
            return bool(found)

        await self._until(has, _PATIENCE_S)
        return self._rng.choice(found) if found else None


def _is_undecided(replica: Replica) -> bool:
    """Whether a leader's log ends with a marker that is not committed."""
    if replica.state is not ReplicaState.ONLINE or not replica.machine.is_leader:
        return False
    return replica.log.transactions.last_marker_offset >= replica.machine.high_watermark


def _machines(node: SimNode) -> list[TransactionMachine]:
    return [] if node.broker is None else node.broker.transactions.active


def _count(machine: TransactionMachine, states: tuple[TransactionState, ...]) -> int:
    counts = machine.transactions_by_state()
    return sum(counts[state] for state in states)
