"""Random faults on three brokers, and clients that write and read meanwhile."""

from __future__ import annotations

import asyncio
import random
from typing import Any

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

    def batch_of(self, value: bytes) -> bytearray:
        return make_batch(1, value=value)

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
                result = await node.produce(self.batch_of(value), timeout_ms=1_500)
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
        result = await cluster[cluster.state().leader].produce(self.batch_of(b"last"))
        assert result.error is ErrorCode.NONE
        await until(lambda: len({n.replica().log.end_offset for n in cluster.nodes.values()}) == 1)
        self.judge([self.values(node) for node in cluster.nodes.values()])

    def judge(self, logs: list[dict[int, bytes | None]]) -> None:
        """``logs``: the values of all replicas, which end at the same offset."""
        assert logs[0] == logs[1] == logs[2]
        assert {o: logs[0].get(o) for o in self.acknowledged} == self.acknowledged, self.faults
        assert {o: logs[0].get(o) for o in self.read} == self.read, self.faults
        values = list(logs[0].values())
        assert len(values) == len(set(values))
