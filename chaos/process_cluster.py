"""A cluster of node processes on this machine: started, killed -9, paused, restarted, stopped.

Used by `stele dev`, the demo, benchmarks and tests. Each node has a directory of its own with its
`server.properties`, its data and its log; a directory that holds a cluster already is started as
it is.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from chaos.cluster_security import ClusterSecurity, ListenerPorts
from chaos.nursery import ForkedProcess, fork_command
from node.format import format_directory, random_cluster_id
from runtime.real.world import RealWorld
from stele.aio import Admin
from stele.errors import SteleError
from stele.security.options import SecurityOptions

FIRST_BROKER_ID = 101
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
_POLL_S = 0.02
_LOG_TAIL_LINES = 8
_TOLD = "stele: "  # how a node begins what is for people
# Below the range from which the kernel takes the ports of outgoing connections. Otherwise a
# connection might have taken a node's port by the time the node is restarted.
FREE_PORTS = range(20_000, 32_000)

LOCK_FILE = "cluster.lock"
"""In a cluster's directory. The process that owns the cluster holds a lock on it."""

THIS_VERSION = (sys.executable, "-m", "cli.main")
_CAN_FORK = sys.platform == "linux"  # elsewhere libraries may not survive it


class ClusterError(SteleError):
    """The cluster could not be started, or a node did not come up; ``str()`` says what to do."""


@dataclass(slots=True)
class NodeProcess:
    """One node: where it lives, how it is reached, and its process if it runs."""

    node_id: int
    directory: Path
    settings: dict[str, str]
    kafka_port: int | None = None
    grpc_port: int | None = None
    nodes_port: int | None = None  # of a secure cluster: where other nodes come in
    metrics_port: int = 0
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    environment: dict[str, str] = field(default_factory=dict)  # beside that of this process
    command: Sequence[str] | None = None  # what executes the node; None: it may be forked
    _run_begins: int = 0  # where in the log file the present or last process began to write

    @property
    def name(self) -> str:
        kind = self.settings["process.roles"].replace(",", "-")
        return f"{kind}-{self.node_id}"

    @property
    def config_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def log_file(self) -> Path:
        return self.directory / "node.log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        if self.process is None:
            raise ClusterError(f"{self.name} does not run")
        return self.process.pid

    def log_tail(self) -> str:
        """The last lines of the present or last process. Older lines belong to other processes."""
        return "\n".join(self._run_log()[-_LOG_TAIL_LINES:])

    def last_words(self) -> str:
        """One line: the last process's message for people, or else the last line of its log."""
        log = self._run_log()
        said = [line for line in log if line.startswith(_TOLD)] or log or ["it said nothing"]
        return said[-1].removeprefix(_TOLD)

    def _run_log(self) -> list[str]:
        if not self.log_file.exists():
            return []
        with self.log_file.open("rb") as log:
            log.seek(self._run_begins)
            return log.read().decode(errors="replace").splitlines()

    def write_config(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in sorted(self.settings.items()))
        self.config_file.write_text(text)

    def spawn(self) -> None:
        """Start the process in a session of its own, so that a Ctrl-C here does not reach it."""
        with self.log_file.open("ab") as log:
            self._run_begins = log.tell()
            self.process = self._fork(log) or self._execute(log)

    def _fork(self, log: IO[bytes]) -> ForkedProcess | None:
        """None: the node must be executed. An environment of its own may change how an interpreter
        begins. And without a nursery, the node itself reports in its log what is wrong."""
        if not _CAN_FORK or self.environment or self.command is not None:
            return None
        try:
            return fork_command(("server", str(self.config_file)), os.environ, log.fileno())
        except OSError:
            return None

    def _execute(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                *(self.command or THIS_VERSION),
                "server",
                str(self.config_file),
                "--exit-with-parent",
                str(os.getpid()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **self.environment},
            start_new_session=True,
        )


@dataclass(slots=True)
class ProcessCluster:
    """Controllers 1, 2, … and brokers 101, 102, …; or, combined, nodes 1, 2, … that are both.

    ``base_port`` None takes free ports. Otherwise brokers listen for Kafka at ``base_port`` and
    up, for gRPC 100 above, and controllers 200 above that. ``settings`` go to every node.
    """

    directory: Path
    controllers: int = 3
    brokers: int = 3
    combined: bool = False
    base_port: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    has_racks: bool = False  # each broker stands in a rack of its own: rack-101, …
    is_secure: bool = False  # see chaos.cluster_security
    nodes: dict[int, NodeProcess] = field(default_factory=dict)
    cluster_id: str = ""
    _lock: int | None = None  # the open lock file, which is ours until it is closed

    @property
    def security(self) -> ClusterSecurity:
        """The certificates and users of a secure cluster."""
        return ClusterSecurity(self.directory)

    @property
    def admin_servers(self) -> str:
        """Where ``admin_security`` is welcome."""
        return ",".join(
            f"127.0.0.1:{node.nodes_port or node.kafka_port}" for node in self._brokers()
        )

    @property
    def admin_security(self) -> SecurityOptions:
        """How a client comes in that may do everything."""
        return self.security.of_administrator if self.is_secure else {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{node.kafka_port}" for node in self._brokers())

    @property
    def broker_ids(self) -> list[int]:
        return [node.node_id for node in self._brokers()]

    @property
    def controller_ids(self) -> list[int]:
        return [
            n.node_id for n in self.nodes.values() if "controller" in n.settings["process.roles"]
        ]

    def administrator(self) -> Admin:
        """A client that may do everything."""
        return Admin(self.admin_servers, on_wait=lambda _: None, **self.admin_security)

    def _brokers(self) -> list[NodeProcess]:
        return [node for node in self.nodes.values() if node.kafka_port is not None]

    # --------------------------------------------------------------------------------- life

    async def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Lay out, format new directories, start every node, wait until all brokers serve.

        Raises ClusterError, after stopping the started nodes. A directory that the caller has
        claimed stays claimed.
        """
        was_claimed = self._lock is not None
        self.claim()
        try:
            self._check_kind()
            self.lay_out()
            if self.is_secure:
                self.security.prepare(self.nodes)
            self._format()
            for node in self.nodes.values():
                node.spawn()
            await self.wait_serving(self.broker_ids, timeout_s=timeout_s)
            if self.is_secure:
                async with self.administrator() as admin:
                    await self.security.introduce_users(admin)
        except BaseException:
            await self.stop_nodes(timeout_s=0)
            if not was_claimed:
                self.release()
            raise

    async def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop all nodes, and let others use the directory."""
        await self.stop_nodes(timeout_s=timeout_s)
        self.release()

    async def stop_nodes(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop brokers, then controllers, in good order; after ``timeout_s`` each with SIGKILL."""
        brokers = set(self.broker_ids)
        for group in (brokers, set(self.nodes) - brokers):
            nodes = [self.nodes[node_id] for node_id in sorted(group)]
            for node in nodes:
                if node.process is not None:
                    node.process.send_signal(signal.SIGCONT)
                    node.process.send_signal(signal.SIGTERM)
            await _gone(nodes, timeout_s)

    def _check_kind(self) -> None:
        """Raises ClusterError if the directory has a cluster of the other kind."""
        if not (self.directory / "cluster.id").exists():
            return
        was_secure = self.security.exists()
        if was_secure and not self.is_secure:
            raise ClusterError(
                f"the cluster in {self.directory.resolve()} is secure: start it with --secure"
            )
        if self.is_secure and not was_secure:
            raise ClusterError(
                f"the cluster in {self.directory.resolve()} is not secure: choose another "
                "directory (stele dev --dir); docs/security.md says how a cluster becomes secure"
            )

    def claim(self) -> None:
        """Lock the directory before anything in it is written. A cluster that runs reads its nodes'
        settings there when they are restarted. Raises ClusterError."""
        if self._lock is not None:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ClusterError(
                f"a cluster runs in {self.directory.resolve()} already: stop it, or choose "
                "another directory (stele dev --dir)"
            ) from None
        self._lock = lock

    def release(self) -> None:
        """Let others claim the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def kill(self, node_id: int) -> None:
        """Send SIGKILL. The process is gone when this returns."""
        process = self.nodes[node_id].process
        if process is not None:
            process.kill()
            process.wait()

    async def stop_node(self, node_id: int, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Send SIGTERM, and wait for the end of the process."""
        node = self.nodes[node_id]
        if node.process is not None:
            node.process.send_signal(signal.SIGTERM)
        await _gone([node], timeout_s)

    def pause(self, node_id: int) -> None:
        """Send SIGSTOP: the node neither works nor closes its connections. Raises ClusterError if
        it has ended."""
        self._signal(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """Send SIGCONT. Raises ClusterError if the node has ended."""
        self._signal(node_id, signal.SIGCONT)

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        """The number of a process that has ended may be another one's by now."""
        node = self.nodes[node_id]
        if node.process is None or not node.running:
            raise ClusterError(_ended(node))
        node.process.send_signal(number)

    async def restart(self, node_id: int, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start a node that was killed or stopped. A broker serves again when this returns."""
        node = self.nodes[node_id]
        if node.running:
            raise ClusterError(f"{node.name} runs already")
        node.spawn()
        if node.kafka_port is not None:
            await self.wait_serving([node_id], timeout_s=timeout_s)

    async def wait_serving(self, broker_ids: Iterable[int], *, timeout_s: float) -> None:
        """Wait until these brokers are unfenced and answer. Raises ClusterError."""
        wanted = set(broker_ids)
        try:
            async with asyncio.timeout(timeout_s):
                for node_id in sorted(wanted):
                    await self._wait_healthy(self.nodes[node_id])
                async with self.administrator() as admin:
                    while not wanted <= await _unfenced(admin):
                        self._check_processes(wanted)
                        await asyncio.sleep(_POLL_S)
        except TimeoutError:
            told = [f"brokers {sorted(wanted)} did not serve within {timeout_s:.0f} s"]
            ended = [node for node in self.nodes.values() if node.process and not node.running]
            told += [_ended(node) for node in ended] or [
                _last_words(self.nodes[node_id]) for node_id in sorted(wanted)
            ]
            raise ClusterError("; ".join(told)) from None

    async def _wait_healthy(self, node: NodeProcess) -> None:
        """Poll the node's health page: cheaper for it than being asked by a client."""
        while not await is_ready("127.0.0.1", node.metrics_port):
            self._check_processes({node.node_id})
            await asyncio.sleep(_POLL_S)

    def _check_processes(self, node_ids: set[int]) -> None:
        for node_id in sorted(node_ids):
            node = self.nodes[node_id]
            if not node.running:
                raise ClusterError(_ended(node))

    # ------------------------------------------------------------------------------- layout

    def lay_out(self) -> None:
        """Decide which nodes there are, and their settings. ``start`` does it, too. In between
        settings may be changed."""
        if self.nodes:
            return
        ports = Ports(self.base_port)
        count = self.brokers if self.combined else self.controllers
        voters = {node_id: ports.controller(node_id) for node_id in range(1, count + 1)}
        quorum = ",".join(f"{each}@127.0.0.1:{port}" for each, port in voters.items())
        for node_id, port in voters.items():
            roles = "broker,controller" if self.combined else "controller"
            self._add(node_id, roles, quorum, ports, controller_port=port)
        if not self.combined:
            for number in range(self.brokers):
                self._add(FIRST_BROKER_ID + number, "broker", quorum, ports)

    def _add(
        self,
        node_id: int,
        roles: str,
        quorum: str,
        ports: Ports,
        controller_port: int | None = None,
    ) -> None:
        directory = self.directory.resolve() / f"{roles.replace(',', '-')}-{node_id}"
        metrics_port = ports.metrics()
        settings = {
            "node.id": str(node_id),
            "process.roles": roles,
            "controller.quorum.voters": quorum,
            "log.dirs": str(directory / "data"),
            "metrics.listener": f"127.0.0.1:{metrics_port}",
        }
        if controller_port is not None:
            settings["controller.listener"] = f"127.0.0.1:{controller_port}"
        kafka_port = grpc_port = None
        listener_ports = None
        if "broker" in roles:
            kafka_port = ports.kafka()
            settings["listeners"] = f"PLAINTEXT://127.0.0.1:{kafka_port}"
            grpc_port = ports.grpc()
            settings["grpc.listeners"] = f"PLAINTEXT://127.0.0.1:{grpc_port}"
            if self.has_racks:
                settings["broker.rack"] = f"rack-{node_id}"
            if self.is_secure:
                nodes = ports.of_nodes(), ports.grpc_of_nodes()
                listener_ports = ListenerPorts(kafka_port, grpc_port, *nodes)
        if self.is_secure:
            settings.update(self.security.settings(node_id, listener_ports))
        settings.update(self.settings)
        self.nodes[node_id] = NodeProcess(
            node_id,
            directory,
            settings,
            kafka_port,
            grpc_port,
            None if listener_ports is None else listener_ports.nodes,
            metrics_port,
        )

    def _format(self) -> None:
        identity = self.directory / "cluster.id"
        self.directory.mkdir(parents=True, exist_ok=True)
        world = RealWorld()
        try:
            if not identity.exists():
                identity.write_text(random_cluster_id(world.world.rng))
            self.cluster_id = identity.read_text().strip()
            for node in self.nodes.values():
                node.write_config()
                if node.command is not None:
                    _format_by(node.command, node, self.cluster_id)
                    continue
                format_directory(
                    world.world.disk,
                    [node.settings["log.dirs"]],
                    self.cluster_id,
                    node.node_id,
                    world.world.rng,
                    ignore_formatted=True,
                )
        finally:
            world.close()


def _format_by(command: Sequence[str], node: NodeProcess, cluster_id: str) -> None:
    """Another version prepares the node's directories. Raises ClusterError."""
    options = ("--config", str(node.config_file), "--cluster-id", cluster_id, "--ignore-formatted")
    done = subprocess.run(
        [*command, "format", *options], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise ClusterError(f"{' '.join(command)} format: {done.stderr.strip()}")


class Ports:
    """Hands out ports of this machine: in order from a base, or whatever is free."""

    def __init__(self, base: int | None) -> None:
        self._base = base
        self._handed_out: dict[str, int] = {}
        self._free = iter(random.sample(FREE_PORTS, len(FREE_PORTS)))

    def kafka(self) -> int:
        return self._next("Kafka", 0)

    def grpc(self) -> int:
        return self._next("gRPC", 100)

    def of_nodes(self) -> int:
        return self._next("Kafka of nodes", 50)

    def grpc_of_nodes(self) -> int:
        return self._next("gRPC of nodes", 150)

    def metrics(self) -> int:
        return self._next("metrics", 300)

    def controller(self, number: int) -> int:
        return self._next("controller", 200)

    def _next(self, kind: str, above_base: int) -> int:
        if self._base is None:
            return next(port for port in self._free if is_free(port))
        port = self._base + above_base + self._handed_out.get(kind, 0)
        self._handed_out[kind] = self._handed_out.get(kind, 0) + 1
        if not is_free(port):
            raise ClusterError(
                f"port {port} on 127.0.0.1, meant for {kind}, is taken: "
                f"is another cluster running? Choose others, e.g. --base-port {self._base + 1000}"
            )
        return port


def is_free(port: int) -> bool:
    """Whether a server on 127.0.0.1 could take it now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _ended(node: NodeProcess) -> str:
    if node.process is None:
        return f"{node.name} does not run"
    code = node.process.returncode
    return f"{node.name} ended with exit code {code}: {_last_words(node)}"


def _last_words(node: NodeProcess) -> str:
    return f"{node.last_words()} (its log: {node.log_file})"


async def is_ready(host: str, port: int) -> bool:
    """Whether ``GET /readyz`` answers 200."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        status = await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()
    return b" 200 " in status


async def _unfenced(admin: Admin) -> set[int]:
    try:
        cluster = await admin.describe_cluster()
    except SteleError:
        return set()
    return {each.broker_id for each in cluster.brokers if not each.fenced}


async def _gone(nodes: list[NodeProcess], timeout_s: float) -> None:
    """Wait until the processes have ended; those that have not by then are killed."""
    try:
        async with asyncio.timeout(timeout_s):
            while any(node.running for node in nodes):
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        for node in nodes:
            if node.process is not None:
                node.process.kill()
                node.process.wait()
