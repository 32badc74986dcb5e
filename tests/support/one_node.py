"""One simulated node that is both controller and broker, used over the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from chaos.sim.world.process import Process
from chaos.sim.world.simulation import Simulation
from node.format import format_directory
from node.node import Node, build
from runtime.authorization.authorizer import Authorizer
from runtime.config.node import from_settings
from tests.support.worlds import Scenario, gives
from world.world import World

HOST = "b1"
SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "log.dirs": "/data",
    "controller.quorum.voters": f"1@{HOST}:9093",
    "controller.listener": f"{HOST}:9093",
    "listeners": f"PLAINTEXT://{HOST}:9092",
    "grpc.listeners": f"PLAINTEXT://{HOST}:9192",
    "metrics.listener": "",
}
# A node without others, whose groups form quickly.
ALONE = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "3",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "3",
    "transaction_two_phase_commit_enable": "true",
    "group_initial_rebalance_delay_ms": "100",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_session_timeout_ms": "10000",
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_heartbeat_interval_ms": "1000",
}


class OneNode:
    """The node, and a client's process beside it."""

    def __init__(self, seed: int = 1, authorizer: Authorizer | None = None) -> None:
        self.simulation = Simulation(seed)
        self._authorizer = authorizer
        self.client_process = self.simulation.process("client")
        self.process: Process
        self.node: Node

    async def start(self, **settings: str) -> None:
        """Start the node and wait until it is ready."""
        await self.boot(**settings)
        await self.process.run(self.node.wait_ready())

    async def boot(self, **settings: str) -> None:
        self.process = self.simulation.process(HOST)
        changed = {key.replace("_", "."): value for key, value in settings.items()}
        config = from_settings(SETTINGS | changed)

        async def begin() -> None:
            world = self.process.world
            format_directory(
                world.disk, ["/data"], "the-cluster", 1, world.rng, ignore_formatted=True
            )
            self.node = build(config, world, authorizer=self._authorizer)
            await self.node.start()

        await self.process.run(begin())

    async def stop(self) -> bool:
        """Stop in good order. Returns whether the mark of a clean shutdown is on the disk."""
        await self.process.run(self.node.stop())
        marked = self.process.world.disk.exists("/data/.kafka_cleanshutdown")
        self.simulation.kill(self.process)
        return marked


async def ask(machine: OneNode, questions: Callable[[World], Awaitable[None]]) -> None:
    """Run the client's side in its own process."""

    async def inside() -> None:
        await questions(machine.client_process.world)

    await machine.client_process.run(inside())


@gives("machine")
def with_machine(scenario: Scenario, /, authorizer: Authorizer | None = None) -> None:
    """A machine whose node the test starts and stops."""
    machine = OneNode(authorizer=authorizer)
    machine.simulation.run(scenario(machine))


@gives("machine", "world")
def on_a_node(scenario: Scenario, /, authorizer: Authorizer | None = None, **settings: str) -> None:
    """In a client's process beside a node that is alone in its cluster, and has to stop cleanly
    after the test. ``settings``: of the node, with underscores for dots."""

    async def whole(machine: OneNode) -> None:
        await machine.start(**{**ALONE, **settings})
        await ask(machine, lambda world: scenario(machine, world))
        assert await machine.stop()

    with_machine.run(whole, authorizer)
