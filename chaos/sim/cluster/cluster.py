"""A whole simulated cluster: the real nodes, each on a machine of its own, and a client beside."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from chaos.sim.cluster.client import SimClient
from chaos.sim.laws import membership
from chaos.sim.laws.invariants import Invariants
from chaos.sim.world.process import Process
from chaos.sim.world.simulation import Simulation, SimulationFailedError
from metadata.image import MetadataImage, PartitionState
from node.format import directories_of, format_directory
from node.node import SUPPORTED_FEATURES, Node, build
from runtime.config.node import Address, NodeConfig, from_settings
from runtime.quorum.config import METADATA_PARTITION, METADATA_TOPIC
from stele.errors import SteleError
from world.world import World

logger = logging.getLogger(__name__)

T = TypeVar("T")

KAFKA_PORT, GRPC_PORT, CONTROLLER_PORT = 9092, 9192, 9093
FIRST_CONTROLLER_ID = 101
CLUSTER_ID = "simulated-cluster-0000"

READY_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.01


class SimNode:
    """One node of the cluster: its machine and disk stay, its process comes and goes."""

    def __init__(self, simulation: Simulation, config: NodeConfig, host: str) -> None:
        self.config = config
        self.id = config.node_id
        self.host = host
        self.process: Process | None = None
        self.node: Node | None = None
        self.failure = ""  # why the last process refused to start, or gave up
        self.on_failed: Callable[[SimNode], None] | None = None
        self.features = SUPPORTED_FEATURES  # as it tells them from its next start on
        self._simulation = simulation
        simulation.machine(host)

    @property
    def metadata_directory(self) -> str:
        return self.config.metadata_log_dir

    @property
    def metadata_log(self) -> str:
        return f"{self.metadata_directory}/{METADATA_TOPIC}-{METADATA_PARTITION}"

    @property
    def shares_metadata_disk(self) -> bool:
        """Whether the metadata log and replicas of partitions are lost together."""
        return self.config.is_broker and self.metadata_directory in self.config.log_dirs

    @property
    def alive(self) -> bool:
        process = self.process
        return process is not None and not process.loop.dead

    @property
    def running(self) -> Node | None:
        """The node, while its process lives."""
        process = self.process  # laws ask this more than anything else: one frame, not three
        return self.node if process is not None and not process.loop.dead else None

    @property
    def ready(self) -> bool:
        return self.alive and self.node is not None and self.node.ready

    def stirred(self) -> bool:
        """Whether anything has run in its process since this was last asked."""
        process = self.process
        if process is None or not process.loop.active:
            return False
        process.loop.active = False
        return True

    def start(self) -> None:
        """Start the process; it formats its directories if they are new."""
        assert not self.alive, f"node {self.id} runs already"
        self.node = None
        self.failure = ""
        process = self.process = self._simulation.process(self.host)
        process.start(self._live(process))

    async def _live(self, process: Process) -> None:
        try:
            format_directory(
                process.world.disk,
                directories_of(self.config),
                CLUSTER_ID,
                self.id,
                process.world.rng,
                ignore_formatted=True,
            )
            node = self.node = build(self.config, process.world, features=self.features)
            await node.start()
            failure: BaseException = await node.wait_failed()
        except (SteleError, OSError) as error:  # it refuses to start
            failure = error
        self.failure = f"{type(failure).__name__}: {failure}"
        self._simulation.note(self.host, "failed", str(failure))
        if self.on_failed is not None:
            self.on_failed(self)
        if self.node is not None:
            await self.node.stop()
        self._simulation.scheduler.at(0.0, self._exit, process)

    def _exit(self, process: Process) -> None:
        if not process.dead:
            self._simulation.kill(process)

    async def stop(self) -> None:
        """An orderly shutdown, then the end of the process."""
        process, node = self.process, self.node
        assert process is not None
        assert node is not None
        await process.run(node.stop())
        self._simulation.note(self.host, "stopped")
        process.kill()

    def kill(self) -> None:
        assert self.process is not None
        self._simulation.kill(self.process)

    def pause(self) -> None:
        assert self.process is not None
        self._simulation.note(self.host, "pause")
        self.process.pause()

    def resume(self) -> None:
        assert self.process is not None
        self._simulation.note(self.host, "resume")
        self.process.resume()


class SimCluster:
    """Controllers and brokers, as separate nodes, from one seed.

    The scenario runs in the process of a client machine: what it awaits of the network goes the
    client's way, and what it does to nodes happens at that instant.
    """

    def __init__(
        self,
        seed: int,
        *,
        controllers: int = 3,
        brokers: int = 3,
        combined: bool = False,
        settings: Mapping[str, str] | None = None,
        keep_transcript: bool = False,
    ) -> None:
        """``combined``: every broker is a controller too; ``controllers`` has no meaning then."""
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
            return SimNode(self.simulation, _config(node_id, host, roles, common), host)

        roles = "broker,controller" if combined else "broker"
        self.brokers = {i: node(i, f"b{i}", roles) for i in broker_ids}
        self.controllers = (
            dict(self.brokers)
            if combined
            else {i: node(i, f"c{i}", "controller") for i in controller_ids}
        )
        self.nodes = {**self.controllers, **self.brokers}
        self.removals = membership.Removals(self.simulation.fabric.wire)
        self.invariants = Invariants(self)
        self._client_process = self.simulation.process("client")
        self.client_world: World = self._client_process.world
        self.client = SimClient(
            self.client_world,
            {i: (broker.host, KAFKA_PORT, GRPC_PORT) for i, broker in self.brokers.items()},
        )
        self.client.on_acknowledged = self.invariants.fenced.acknowledged

    # --------------------------------------------------------------------------------- voters

    def add_controller(self) -> SimNode:
        """A new machine with a controller, started, that observes until it is made a voter.

        From their next start on, all nodes know it as one to ask for the quorum's leader.
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
        """One attempt to make a controller that runs a voter, with the disk that it has now.

        Raises ApiError: refused, not caught up, or the outcome is unknown; RpcError: no broker
        answers. So does ``remove_voter``.
        """
        endpoint = f"{self.controllers[node_id].host}:{CONTROLLER_PORT}"
        await membership.add(self, node_id, endpoint)

    async def remove_voter(self, node_id: int) -> None:
        await membership.remove(self, node_id)

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """By the newest voters that any controller knows; they may not be committed."""
        return membership.newest_voters(self).ids

    def wipe(self, node: SimNode) -> None:
        """A node that is down gets an empty disk. As a voter it has to be removed and added."""
        assert not node.alive, f"node {node.id} runs"
        for directory in directories_of(node.config):
            self.simulation.machine(node.host).disk.lose(directory)

    # -------------------------------------------------------------------------------- running

    def run(self, scenario: Callable[[SimCluster], Coroutine[Any, Any, T]]) -> T:
        """Start everything, run the scenario to its end, with the invariants looked at often."""

        async def whole() -> T:
            # What runs or stands still is looked at all the same.
            self.simulation.scheduler.watch(_LOOK_EVERY_S, self.invariants.check)
            for node in self.nodes.values():
                node.start()
            await self.until(
                lambda: all(node.ready for node in self.nodes.values()), "every node is ready"
            )
            result = await scenario(self)
            await self.client.close()
            return result

        result = self.simulation.run(self._client_process.run(whole()))
        if self.invariants.violations:
            raise SimulationFailedError(
                f"seed {self.simulation.seed}: " + "; ".join(self.invariants.violations[:5])
            )
        return result

    async def until(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        """Wait in virtual time until a condition holds. Raises AssertionError when it does not."""
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
        """The controller that is active and alive; of several that think so, the newest."""
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
        """The active controller, if it is certain that no other one has taken its place.

        One that stands still or is cut off may go by metadata and voters of long ago.
        """
        active = self.active_controller
        if active is None or not active.ready or not membership.is_followed(self, active):
            return None
        return active

    @property
    def image(self) -> MetadataImage:
        """The committed metadata as the active controller has it, else the newest one's."""
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
        """All replicas that it has by now, moved or not, are in sync."""

        def whole() -> bool:
            state = self.partition(topic, partition)
            return set(state.isr) == set(state.replicas)

        await self.until(whole, f"all replicas of {topic}-{partition} are in sync")


def _epoch(node: SimNode) -> int:
    quorum = None if node.node is None else node.node.quorum
    return -1 if quorum is None else quorum.leader.epoch


def _config(node_id: int, host: str, roles: str, common: Mapping[str, str]) -> NodeConfig:
    own = {"process.roles": roles, "node.id": str(node_id), "log.dirs": "/data"}
    if "controller" in roles:
        own["controller.listener"] = f"{host}:{CONTROLLER_PORT}"
    if "broker" in roles:
        own["listeners"] = f"PLAINTEXT://{host}:{KAFKA_PORT}"
        own["grpc.listeners"] = f"PLAINTEXT://{host}:{GRPC_PORT}"
    return from_settings({**common, **own})
