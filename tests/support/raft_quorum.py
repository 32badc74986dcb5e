"""Whole replicas of the metadata quorum with the real driver in the simulated world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from chaos.sim.world.process import Process
from chaos.sim.world.simulation import Simulation
from raft.api import CommittedBatch, LeaderAndEpoch
from raft.quorum import NO_DIRECTORY
from raft.ready import Role
from runtime.config.addresses import CONTROLLER, NamedAddress, parse_endpoint
from runtime.quorum.config import QuorumConfig, QuorumVoter
from runtime.quorum.quorum import Quorum
from stele.addresses import Address
from tests.support.worlds import Scenario, gives
from world.network import Service

PORT = 9093
DIRECTORY = "/data"


class Witness:
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []
        self.end_offset = 0
        self.events: list[tuple[Any, ...]] = []
        self.records_when_claimed: list[int] = []
        self.snapshot: list[bytes] = []
        self.on_batches: Callable[[Sequence[CommittedBatch]], None] = lambda _: None

    @property
    def state(self) -> list[bytes]:
        """Every record since the beginning: the content of a snapshot of the witness."""
        return [*self.snapshot, *self.records]

    @property
    def records(self) -> list[bytes]:
        return [record for batch in self.batches for record in batch.records]

    def on_commit(self, batches: Sequence[CommittedBatch], end_offset: int) -> None:
        assert end_offset > self.end_offset
        self.end_offset = end_offset
        if not batches:
            return
        assert batches[-1].last_offset < end_offset
        self.batches.extend(batches)
        self.events.append(("commit", batches[0].base_offset, batches[-1].last_offset))
        self.on_batches(batches)

    def on_snapshot(self, end_offset: int, records: Sequence[bytes]) -> None:
        assert not self.batches or self.batches[-1].last_offset < end_offset
        self.snapshot = list(records)
        self.end_offset = end_offset
        self.batches.clear()
        self.events.append(("snapshot", end_offset))

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.events.append(("leader", leader.leader_id, leader.epoch))

    def on_claimed(self, epoch: int) -> None:
        self.events.append(("claimed", epoch))
        self.records_when_claimed.append(len(self.records))

    def on_resigned(self, epoch: int) -> None:
        self.events.append(("resigned", epoch))


class QuorumNode:
    """One node's replica. Each start makes a new process and a new driver."""

    def __init__(self, cluster: QuorumCluster, node_id: int) -> None:
        self.cluster = cluster
        self.id = node_id
        self.machine = f"node{node_id}"
        self.config = QuorumConfig(
            cluster.cluster_id, node_id, bytes([node_id]) * 16, cluster.voters
        )
        self.port = PORT
        self.fatal: list[BaseException] = []
        self.process: Process
        self.quorum: Quorum
        self.service: Service  # what it serves; a test may replace it
        self.witness: Witness

    @property
    def up(self) -> bool:
        return hasattr(self, "process") and not self.process.dead

    async def start(self, **config: Any) -> None:
        self.process = self.cluster.simulation.process(self.machine)
        self.config = replace(self.config, **config)
        await self.process.run(self._start())

    async def _start(self) -> None:
        world = self.process.world
        world.disk.make_directory(DIRECTORY)
        world.disk.sync_now("/")
        self.witness = Witness()
        self.quorum = Quorum(self.config, world, DIRECTORY, on_fatal=self.fatal.append)
        self.quorum.add_listener(self.witness)
        self.quorum.take_snapshots_of(lambda: self.witness.state)
        await self.quorum.start()
        self.service = self.quorum.service()
        if not self.config.may_vote:
            return
        listeners = parse_endpoint(self.config.endpoint) or ()
        for each in listeners or [NamedAddress(CONTROLLER, self.machine, self.port)]:
            address = Address(self.machine, each.port)
            await world.network.serve(address, self.service.on_listener(each.name))

    async def stop(self) -> None:
        await self.process.run(self.quorum.stop())
        self.kill()

    def kill(self) -> None:
        self.cluster.simulation.kill(self.process)

    async def propose(self, *records: bytes) -> int:
        """Propose records as the leader that it believes to be."""

        async def propose() -> int:
            return self.quorum.propose(records, epoch=self.quorum.leader.epoch)

        return await self.process.run(propose())

    async def call(self, target: QuorumNode, method: str, request: bytes) -> bytes:
        async def call() -> bytes:
            channel = self.process.world.network.channel(Address(target.machine, target.port))
            try:
                return await channel.call(method, request, timeout_s=2.0)
            finally:
                await channel.close()

        return await self.process.run(call())


class QuorumCluster:
    """Voters 1..n, then observers. Coroutines here run outside of every process."""

    def __init__(
        self, seed: int = 0, voters: int = 3, observers: int = 0, cluster_id: str = "cluster"
    ) -> None:
        self.simulation = Simulation(seed)
        self.cluster_id = cluster_id
        self.voters = tuple(QuorumVoter(node, f"node{node}", PORT) for node in range(1, voters + 1))
        self.replicas = {node: QuorumNode(self, node) for node in range(1, voters + observers + 1)}

    @property
    def now(self) -> float:
        return self.simulation.now

    async def start(self) -> QuorumNode:
        """Start all replicas. Returns the leader once the log has the directory id of every
        voter."""
        for replica in self.replicas.values():
            await replica.start()
        leader = await self.leader()

        def learned() -> bool:
            known = all(v.key.directory_id != NO_DIRECTORY for v in leader.quorum.voters.voters)
            return known and leader.quorum.high_watermark == leader.quorum.log_end_offset

        await self.until(learned)
        return leader

    async def leader(self, *, after_epoch: int = 0, timeout_s: float = 10.0) -> QuorumNode:
        """The leader of an epoch after ``after_epoch``, once it has claimed it."""

        def claimed() -> QuorumNode | None:
            for replica in self.replicas.values():
                if replica.up and replica.quorum.role is Role.LEADER:
                    epoch = replica.quorum.leader.epoch
                    if epoch > after_epoch and ("claimed", epoch) in replica.witness.events:
                        return replica
            return None

        await self.until(lambda: claimed() is not None, timeout_s=timeout_s)
        found = claimed()
        assert found is not None
        return found

    async def until(self, condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
        deadline = self.now + timeout_s
        while not condition():
            assert self.now < deadline, f"not within {timeout_s} s: {self.describe()}"
            await asyncio.sleep(0.001)

    async def until_equal(self, *replicas: QuorumNode, timeout_s: float = 10.0) -> None:
        """Wait until these replicas (by default all that run) were delivered the same records, and
        all of them."""
        chosen = replicas or [replica for replica in self.replicas.values() if replica.up]

        def equal() -> bool:
            ends = {replica.quorum.log_end_offset for replica in chosen}
            marks = {replica.quorum.high_watermark for replica in chosen}
            delivered = [replica.witness.batches for replica in chosen]
            return ends == marks and len(ends) == 1 and delivered.count(delivered[0]) == len(chosen)

        await self.until(equal, timeout_s=timeout_s)

    def others(self, replica: QuorumNode) -> list[QuorumNode]:
        return [
            other
            for other in self.replicas.values()
            if other is not replica and other.config.may_vote
        ]

    def isolate(self, replica: QuorumNode) -> None:
        names = [r.machine for r in self.replicas.values() if r is not replica]
        self.simulation.fabric.isolate(replica.machine, names)

    def describe(self) -> str:
        return "; ".join(
            f"{r.id}: {r.quorum.role.value} {r.quorum.leader} end={r.quorum.log_end_offset}"
            f" hw={r.quorum.high_watermark}"
            if r.up
            else f"{r.id}: down"
            for r in self.replicas.values()
        )


@gives("cluster")
def with_quorum(
    scenario: Scenario,
    /,
    seed: int = 0,
    voters: int = 3,
    observers: int = 0,
    cluster_id: str = "cluster",
) -> None:
    """Replicas of a quorum, which the test starts."""
    cluster = QuorumCluster(seed, voters, observers, cluster_id)
    cluster.simulation.run(scenario(cluster))
