"""Random faults on three brokers, by seed: what was acknowledged or read stays."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from chaos.sim.laws.sessions import unnoticed
from chaos.sim.world.process import ProcessEndedError
from stele.errors import ErrorCode
from stele.wire.batch import batches, decode
from tests.support.batches import make_batch
from tests.support.replica_cluster import Node, ReplicaCluster
from tests.support.timing import until

SESSION_S = 2.0


class Chaos:
    """Clients that write and read, and faults."""

    def __init__(self, cluster: ReplicaCluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.acknowledged: dict[int, bytes] = {}  # offset → value
        self.read: dict[int, bytes] = {}
        self.attempts = 0
        self.refusals: dict[ErrorCode, int] = {}
        self.faults: list[str] = []
        self.stopping = False

    def leader(self) -> Node | None:
        leader = self.cluster.state().leader
        # A client that does not know the newest leader asks an old one.
        if self.rng.random() < 0.1:
            leader = self.rng.choice([1, 2, 3])
        return self.cluster.nodes.get(leader)

    async def write(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.rng.uniform(0, 0.02))
            node = self.leader()
            if node is None or node.process.dead:
                continue
            self.attempts += 1
            value = b"value-%d" % self.attempts
            try:
                result = await node.produce(make_batch(1, value=value), timeout_ms=1_500)
            except ProcessEndedError:
                continue
            if result.error is ErrorCode.NONE:
                assert result.base_offset not in self.acknowledged
                self.acknowledged[result.base_offset] = value
            else:
                self.refusals[result.error] = self.refusals.get(result.error, 0) + 1

    async def consume(self) -> None:
        offset = 0
        while not self.stopping:
            await asyncio.sleep(self.rng.uniform(0, 0.05))
            node = self.leader()
            if node is None or node.process.dead:
                continue
            try:
                result = await node.fetch(offset, max_wait_ms=200)
            except ProcessEndedError:
                continue
            for buffer in result.records:
                for at, header in batches(buffer):
                    for record in decode(buffer, at):
                        assert record.value is not None
                        self.read[record.offset] = record.value
                    offset = header.next_offset

    # ------------------------------------------------------------------------------ faults

    async def cut_off(self, node: Node) -> None:
        """Cut a broker off from everybody, including the controller, until its session is over, and
        longer."""
        others = [other.name for other in self.cluster.nodes.values() if other is not node]
        self.cluster.simulation.fabric.isolate(node.name, others)
        await asyncio.sleep(self.rng.uniform(0, 1.5))
        node.lease = False
        self.cluster.fence(node.broker_id, tell=False)
        await asyncio.sleep(self.rng.uniform(0, 2))
        self.cluster.simulation.fabric.heal()
        self.cluster.tell(node)
        self.cluster.unfence(node.broker_id)
        node.lease = True

    async def hiccup(self, node: Node) -> None:
        """Cut a broker off for less than a session: nobody is fenced."""
        other = self.rng.choice([n.name for n in self.cluster.nodes.values() if n is not node])
        self.cluster.simulation.fabric.cut(node.name, other)
        await asyncio.sleep(self.rng.uniform(0, SESSION_S))
        self.cluster.simulation.fabric.heal()

    async def crash(self, node: Node) -> None:
        if self.rng.random() < 0.5:
            node.kill()
        else:
            self.cluster.simulation.power_off(node.name)
            self.cluster.simulation.power_on(node.name)
        await asyncio.sleep(self.rng.uniform(0, 0.3))
        if self.rng.random() < 0.7:
            self.cluster.fence(node.broker_id)
            await asyncio.sleep(self.rng.uniform(0, 2))
        await node.start()
        self.cluster.register(node)

    async def all_lose_power(self, _: Node) -> None:
        for node in self.cluster.nodes.values():
            self.cluster.simulation.power_off(node.name)
        for node in self.cluster.nodes.values():
            self.cluster.simulation.power_on(node.name)
            await node.start()
            self.cluster.register(node)

    async def move_the_leader(self, _: Node) -> None:
        state = self.cluster.state()
        if state.leader != -1:
            live = [each for each in state.isr if self.cluster.image.is_active(each)]
            self.cluster.change(leader=self.rng.choice(live or [state.leader]))

    async def break_things(self, rounds: int) -> None:
        kinds: list[Any] = [self.cut_off, self.hiccup, self.crash, self.move_the_leader]
        for _ in range(rounds):
            await asyncio.sleep(self.rng.uniform(0, 0.5))
            node = self.cluster[self.rng.choice([1, 2, 3])]
            fault = self.rng.choice(kinds if self.rng.random() < 0.9 else [self.all_lose_power])
            self.faults.append(f"{fault.__name__}({node.broker_id})")
            await fault(node)

    async def watch(self) -> None:
        """Partitions that the leaders do not examine must not need it."""
        while not self.stopping:
            await asyncio.sleep(0.01)
            for node in self.cluster.nodes.values():
                if not node.process.dead:
                    assert not list(unnoticed(node.manager.hosted, node.sessions)), self.faults

    # ------------------------------------------------------------------------------ verdict

    def values(self, node: Node) -> dict[int, bytes | None]:
        found: dict[int, bytes | None] = {}
        for header, batch in node.replica().log.batches_now(0):
            for record in decode(batch):
                assert record.offset not in found
                found[record.offset] = record.value
            assert header.leader_epoch == node.replica().log.epochs.epoch_for(header.base_offset)
        return found

    async def verify(self) -> None:
        cluster = self.cluster
        await until(lambda: cluster.state().isr == (1, 2, 3), within_s=60)
        result = await cluster[cluster.state().leader].produce(make_batch(1, value=b"last"))
        assert result.error is ErrorCode.NONE
        await until(lambda: len({n.replica().log.end_offset for n in cluster.nodes.values()}) == 1)
        logs = [self.values(node) for node in cluster.nodes.values()]
        assert logs[0] == logs[1] == logs[2]
        assert {o: logs[0].get(o) for o in self.acknowledged} == self.acknowledged, self.faults
        assert {o: logs[0].get(o) for o in self.read} == self.read, self.faults
        values = list(logs[0].values())
        assert len(values) == len(set(values))


@pytest.mark.parametrize("min_insync", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_acknowledged_or_read_is_ever_lost(seed: int, min_insync: int) -> None:
    cluster = ReplicaCluster(seed=seed, replica_lag_time_max_ms=3_000)
    chaos = Chaos(cluster, seed)

    async def scenario(_: ReplicaCluster) -> None:
        cluster.create_topic((1, 2, 3), min_insync=min_insync)
        await until(lambda: all(node.holds() for node in cluster.nodes.values()))
        clients = [asyncio.ensure_future(chaos.write()) for _ in range(4)]
        clients.append(asyncio.ensure_future(chaos.consume()))
        clients.append(asyncio.ensure_future(chaos.watch()))
        await chaos.break_things(12)
        chaos.stopping = True
        await asyncio.gather(*clients)
        await chaos.verify()

    cluster.run(scenario)
    # A run in which nothing was written proves nothing.
    assert len(chaos.acknowledged) > 50, (len(chaos.acknowledged), chaos.refusals)
    assert chaos.read
