"""One node of a simulated cluster: its machine and disk stay, its processes come and go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from broker.broker import Broker
from broker.replication.replica import Replica, ReplicaState
from chaos.sim.world.process import Process
from chaos.sim.world.simulation import Simulation
from node.directories import directories_of
from node.format import format_directory
from node.node import SUPPORTED_FEATURES, Node, build
from raft.core import RaftCore
from runtime.config.node import NodeConfig, from_settings
from stele.errors import SteleError
from storage.copies import COPY_FILE
from storage.directory_names import METADATA_PARTITION, METADATA_TOPIC

CLUSTER_ID = "simulated-cluster-0000"


class SimNode:
    """A machine and disk that stay, and a process that starts, runs and dies."""

    def __init__(self, simulation: Simulation, config: NodeConfig, host: str) -> None:
        self.config = config
        self.id = config.node_id
        self.host = host
        self.process: Process | None = None
        self.node: Node | None = None
        self.failure = ""  # why the last process refused to start, or gave up
        self.on_failed: Callable[[SimNode], None] | None = None
        self.on_start: Callable[[SimNode], None] | None = None  # before a new process begins
        self.incarnation = ""
        """The name of its present process, or of its last one."""
        self.features = SUPPORTED_FEATURES  # what it supports from its next start on
        self.machine = simulation.machine(host)
        self._simulation = simulation

    def reconfigure(self, settings: Mapping[str, str]) -> None:
        """Change its ``server.properties``, which count from its next start on. {host} stands for
        the machine."""
        changed = {key: value.replace("{host}", self.host) for key, value in settings.items()}
        self.config = replace(
            from_settings({**self.config.raw, **changed}),
            bootstrap_controllers=self.config.bootstrap_controllers,
        )

    @property
    def runs_as_configured(self) -> bool:
        """Whether its broker works with its present settings."""
        running = self.running
        return running is not None and running.ready and running.config is self.config

    @property
    def metadata_directory(self) -> str:
        return self.config.metadata_log_dir

    @property
    def metadata_log(self) -> str:
        return f"{self.metadata_directory}/{METADATA_TOPIC}-{METADATA_PARTITION}"

    def replica_path(self, name: str) -> str:
        """Where the log of a replica is on the disk: the one that its broker uses, if it runs."""
        used = self._used_replica(name)
        return self.kept_paths(name)[0] if used is None else used.log.directory

    def kept_paths(self, name: str) -> list[str]:
        """Where a restart after a loss of power may find the log of a replica.

        There may be two if the broker does not run: one was made or copied while the other
        directory was dead. The metadata tell which counts. A log that is nowhere would be in the
        first directory.
        """
        paths = [f"{directory}/{name}" for directory in self.config.log_dirs]
        used = self._used_replica(name)
        if used is not None and not self._is_copy(used.log.directory):
            return [used.log.directory]
        there = [path for path in paths if self.machine.disk.find(path) is not None]
        return [path for path in there if not self._is_copy(path)] or paths

    def _is_copy(self, path: str) -> bool:
        """Whether a loss of power would leave a copy there that is no log yet."""
        return self.machine.disk.exists_durably(f"{path}/{COPY_FILE}")

    def _used_replica(self, name: str) -> Replica | None:
        """The running broker's replica of a name, if the broker has several log directories and
        can use the replica. With one directory nothing depends on it."""
        if len(self.config.log_dirs) == 1 or self.broker is None:
            return None
        for replica in self.broker.replicas:
            if replica.state is ReplicaState.ONLINE and repr(replica) == name:
                return replica
        return None

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
    def broker(self) -> Broker | None:
        """The broker, if it has begun and its process lives."""
        node, process = self.node, self.process
        if node is None or process is None or process.loop.dead:
            return None
        return node.broker

    @property
    def core(self) -> RaftCore | None:
        """The raft core of the metadata quorum, if it has begun and its process lives."""
        node, process = self.node, self.process  # laws ask this often, too
        if node is None or node.quorum is None or process is None or process.loop.dead:
            return None
        return node.quorum.core

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
        if self.on_start is not None:
            self.on_start(self)
        self.node = None
        self.failure = ""
        process = self.process = self._simulation.process(self.host)
        self.incarnation = f"{self.host} #{process.incarnation}"
        process.start(self._live(process))

    async def _live(self, process: Process) -> None:
        try:
            format_directory(
                process.world.disk,
                [
                    each
                    for each in directories_of(self.config)
                    if not self.machine.disk.is_dead(each)
                ],
                CLUSTER_ID,
                self.id,
                process.world.rng,
                ignore_formatted=True,
            )
            node = self.node = build(self.config, process.world, features=self.features)
            await node.start()
            failure: BaseException = await node.wait_failed()
        except (SteleError, OSError) as error:  # the node refuses to start
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
        """Shut the node down in order, then end its process."""
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
