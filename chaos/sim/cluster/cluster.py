"""A whole simulated cluster: the real nodes, each on a machine of its own, and a client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from chaos.sim.cluster import membership
from chaos.sim.cluster.client import SimClient
from chaos.sim.cluster.node import CLUSTER_ID, SimNode
from chaos.sim.world.simulation import Simulation
from metadata.image import MetadataImage
from metadata.partitions import PartitionState
from node.directories import directories_of
from raft.quorum import VoterSet
from runtime.config.node import NodeConfig, from_settings
from stele.addresses import Address
from world.world import World

logger = logging.getLogger(__name__)

T = TypeVar("T")

KAFKA_PORT, GRPC_PORT, CONTROLLER_PORT = 9092, 9192, 9093
FIRST_CONTROLLER_ID = 101

READY_TIMEOUT_S = 60.0

_LISTENERS = {
    "listeners": f"PLAINTEXT://{{host}}:{KAFKA_PORT}",
    "grpc.listeners": f"PLAINTEXT://{{host}}:{GRPC_PORT}",
}
"""A broker's. If a cluster's settings name others, {host} stands there for the machine."""


class SimCluster:
    """Controllers and brokers, as separate nodes, from one seed.

    The scenario runs in the process of a client machine. Its calls over the network start at that
    machine. What it does to nodes happens at that instant.
    """

    def __init__(
        self,
        seed: int,
        *,
        controllers: int = 3,
        brokers: int = 3,
        combined: bool = False,
        settings: Mapping[str, str] | None = None,
        racks: Sequence[str] = (),
        directories: Sequence[str] = ("/data",),
        keep_transcript: bool = False,
    ) -> None:
        """``combined``: every broker is a controller too; ``controllers`` has no meaning then.
        ``racks``: of the brokers, in turn. ``directories``: the log directories of each broker."""
        self.simulation = Simulation(seed, keep_transcript=keep_transcript)
        self.cluster_id = CLUSTER_ID
        broker_ids = range(1, brokers + 1)
        first = 1 if combined else FIRST_CONTROLLER_ID
        controller_ids = range(first, first + (brokers if combined else controllers))
        letter = "b" if combined else "c"
        voters = ",".join(f"{i}@{letter}{i}:{CONTROLLER_PORT}" for i in controller_ids)
        self._settings = {"metrics.listener": "", **(settings or {})}
        common = {**self._settings, "controller.quorum.voters": voters}

        def node(node_id: int, host: str, roles: str) -> SimNode:
            own = {"log.dirs": ",".join(directories)} if node_id in broker_ids else {}
            if racks and node_id in broker_ids:
                own["broker.rack"] = racks[node_id % len(racks)]
            return SimNode(self.simulation, _config(node_id, host, roles, common | own), host)

        roles = "broker,controller" if combined else "broker"
        self.brokers = {i: node(i, f"b{i}", roles) for i in broker_ids}
        self.controllers = (
            dict(self.brokers)
            if combined
            else {i: node(i, f"c{i}", "controller") for i in controller_ids}
        )
        self.nodes = {**self.controllers, **self.brokers}
        self.removals = membership.Removals(self.simulation.fabric.wire)
        self._client_process = self.simulation.process("client")
        self.client_world: World = self._client_process.world
        self.client = SimClient(
            self.client_world,
            {i: (broker.host, KAFKA_PORT, GRPC_PORT) for i, broker in self.brokers.items()},
        )

    # --------------------------------------------------------------------------------- voters

    def add_controller(self) -> SimNode:
        """Start a controller on a new machine. It observes the quorum until it is made a voter.

        From their next start on, all nodes also ask it for the quorum's leader.
        """
        node_id = max(FIRST_CONTROLLER_ID - 1, *self.controllers) + 1
        host = f"c{node_id}"
        known = ",".join(f"{each.host}:{CONTROLLER_PORT}" for each in self.controllers.values())
        settings = {**self._settings, "controller.quorum.bootstrap.servers": known}
        node = SimNode(self.simulation, _config(node_id, host, "controller", settings), host)
        self.controllers[node_id] = self.nodes[node_id] = node
        servers = tuple(Address(each.host, CONTROLLER_PORT) for each in self.controllers.values())
        for each in self.nodes.values():
            each.config = replace(each.config, bootstrap_controllers=servers)
        node.start()
        return node

    async def add_voter(self, node_id: int) -> None:
        """Make one attempt to make a running controller a voter with its present disk.

        Raises ApiError if it is refused or not caught up or the outcome is unknown, and RpcError if
        no broker answers. So does ``remove_voter``.
        """
        node = self.controllers[node_id]
        await membership.add(self.client, node, f"{node.host}:{CONTROLLER_PORT}")

    async def remove_voter(self, node_id: int) -> None:
        await membership.remove(self.client, self.controllers, node_id)

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """The ids of ``newest_voters``."""
        return self.newest_voters.ids

    @property
    def newest_voters(self) -> VoterSet:
        """The newest set that any running controller knows. It may not be committed."""
        return membership.newest_voters(self.controllers.values())

    @property
    def settled_voters(self) -> VoterSet:
        """The committed voters if the quorum knows the disk of each, else an empty set. Empty, too,
        while no controller is established."""
        leading = self.established_controller
        return VoterSet([]) if leading is None else membership.settled_voters(leading)

    def wipe(self, node: SimNode) -> None:
        """Give a node that is down an empty disk. A voter must be removed and added after that."""
        assert not node.alive, f"node {node.id} runs"
        for directory in directories_of(node.config):
            node.machine.disk.lose(directory)

    # -------------------------------------------------------------------------------- running

    def run(self, scenario: Callable[[SimCluster], Coroutine[Any, Any, T]]) -> T:
        """Start everything and run the scenario to its end."""

        async def whole() -> T:
            for node in self.nodes.values():
                node.start()
            await self.until(
                lambda: all(node.ready for node in self.nodes.values()), "every node is ready"
            )
            result = await scenario(self)
            await self.client.close()
            return result

        return self.simulation.run(self._client_process.run(whole()))

    async def until(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        """Wait in virtual time until a condition holds. Raises AssertionError after the timeout."""
        start = self.simulation.now
        while not condition():
            if self.simulation.now - start > timeout_s:
                raise AssertionError(
                    f"seed {self.simulation.seed}: not within {timeout_s:g} s: {what}"
                )
            await asyncio.sleep(0.02)

    async def within(self, work: Awaitable[T], timeout_s: float) -> T:
        async with asyncio.timeout(timeout_s):
            return await work

    # -------------------------------------------------------------------------------- looking

    @property
    def active_controller(self) -> SimNode | None:
        """The live controller that considers itself active; of several, the one of the newest
        epoch."""
        active = [
            node
            for node in self.controllers.values()
            if node.alive
            and node.node is not None
            and node.node.controller is not None
            and node.node.controller.active
        ]
        return max(active, key=_epoch, default=None)

    @property
    def established_controller(self) -> SimNode | None:
        """The active controller, if no other one can have taken its place.

        An active controller that is paused or cut off may know only old metadata and voters.
        """
        active = self.active_controller
        if active is None or not active.ready:
            return None
        if not membership.is_followed(self.controllers.values(), active):
            return None
        return active

    @property
    def image(self) -> MetadataImage:
        """The committed metadata of the active controller, or else of the controller in the newest
        epoch."""
        node = self.active_controller
        if node is None:
            alive = [each for each in self.controllers.values() if each.node is not None]
            node = max(alive, key=_epoch)
        assert node.node is not None
        assert node.node.controller is not None
        return node.node.controller.image

    def partition(self, topic: str, partition: int = 0) -> PartitionState:
        image = self.image
        found = image.topic(topic)
        assert found is not None, f"no topic {topic}"
        return found.partitions[partition]

    def leader(self, topic: str, partition: int = 0) -> SimNode:
        """The broker that leads by the committed metadata."""
        return self.brokers[self.partition(topic, partition).leader]

    async def until_isr(self, topic: str, size: int, partition: int = 0) -> None:
        await self.until(
            lambda: len(self.partition(topic, partition).isr) == size,
            f"{topic}-{partition} has {size} replicas in sync",
        )

    async def until_whole(self, topic: str, partition: int = 0) -> None:
        """Wait until all present replicas are in sync, whether a move goes on or not."""

        def whole() -> bool:
            state = self.partition(topic, partition)
            return set(state.isr) == set(state.replicas)

        await self.until(whole, f"all replicas of {topic}-{partition} are in sync")


def _epoch(node: SimNode) -> int:
    quorum = None if node.node is None else node.node.quorum
    return -1 if quorum is None else quorum.leader.epoch


def _config(node_id: int, host: str, roles: str, common: Mapping[str, str]) -> NodeConfig:
    own = {"process.roles": roles, "node.id": str(node_id)}
    if "broker" not in roles:
        common = {key: value for key, value in common.items() if not _is_of_brokers(key, common)}
    if "controller" in roles:
        own["controller.listener"] = f"{host}:{CONTROLLER_PORT}"
    if "broker" in roles:
        for key, usual in _LISTENERS.items():
            own[key] = common.get(key, usual).replace("{host}", host)
    return from_settings({"log.dirs": "/data", **common, **own})


def _is_of_brokers(key: str, common: Mapping[str, str]) -> bool:
    """A controller knows its own listeners, and the one by which it asks brokers whether they
    live."""
    inter_broker = common.get("inter.broker.listener.name", "PLAINTEXT").lower()
    known = ("listener.name.controller.", f"listener.name.{inter_broker}.")
    return key in _LISTENERS or (key.startswith("listener.name.") and not key.startswith(known))
