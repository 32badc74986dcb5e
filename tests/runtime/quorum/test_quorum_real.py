"""The quorum over gRPC, on real disks and a real event loop."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from raft.ready import Role
from runtime.quorum.config import QuorumConfig, QuorumVoter
from runtime.quorum.quorum import Quorum
from runtime.real.compute import RealCompute
from runtime.real.disk import RealDisk
from runtime.real.network import RealNetwork
from stele.addresses import Address
from stele.real import RealClock
from tests.support.raft_quorum import Witness
from tests.support.sim import free_ports
from tests.support.timing import until
from world.network import Listener
from world.world import World


class Node:
    def __init__(self, node_id: int, voters: tuple[QuorumVoter, ...], directory: Path) -> None:
        self.id = node_id
        self.voters = voters
        self.directory = directory / str(node_id)
        self.directory.mkdir()
        self.fatal: list[BaseException] = []
        self.listener: Listener | None = None

    async def start(self) -> None:
        self.disk = RealDisk()
        world = World(RealClock(), self.disk, RealNetwork(), random.Random(self.id), RealCompute())
        config = QuorumConfig("cluster", self.id, bytes([self.id]) * 16, self.voters)
        self.witness = Witness()
        self.quorum = Quorum(config, world, str(self.directory), on_fatal=self.fatal.append)
        self.quorum.add_listener(self.witness)
        ports = {voter.id: voter.port for voter in self.voters}
        if self.id in ports:
            service = self.quorum.service()
            self.listener = await world.network.serve(Address("127.0.0.1", ports[self.id]), service)
        await self.quorum.start()

    async def stop(self) -> None:
        await self.quorum.stop()
        if self.listener is not None:
            await self.listener.close()
        self.disk.close()


def leader_of(nodes: list[Node]) -> Node | None:
    for node in nodes:
        epoch = node.quorum.leader.epoch
        if node.quorum.role is Role.LEADER and ("claimed", epoch) in node.witness.events:
            return node
    return None


async def elected(nodes: list[Node]) -> Node:
    await until(lambda: leader_of(nodes) is not None)
    leader = leader_of(nodes)
    assert leader is not None
    return leader


async def test_elect_commit_hand_over_and_come_back(tmp_path: Path) -> None:
    voters = tuple(
        QuorumVoter(node, "127.0.0.1", port) for node, port in enumerate(free_ports(3), start=1)
    )
    nodes = [Node(node, voters, tmp_path) for node in (1, 2, 3, 4)]
    for node in nodes:
        await node.start()
    leader = await elected(nodes)
    expected = [b"%d" % number for number in range(100)]
    for record in expected:
        leader.quorum.propose([record], epoch=leader.quorum.leader.epoch)
    await until(lambda: all(node.witness.records == expected for node in nodes))

    await leader.stop()
    rest = [node for node in nodes if node is not leader]
    successor = await elected(rest)
    assert successor.quorum.leader.epoch > 1
    successor.quorum.propose([b"after"], epoch=successor.quorum.leader.epoch)
    expected.append(b"after")
    await until(lambda: all(node.witness.records == expected for node in rest))

    await leader.start()
    await until(lambda: leader.witness.records == expected)
    for node in nodes:
        await node.stop()
        assert not node.fatal
    assert len(asyncio.all_tasks()) == 1
