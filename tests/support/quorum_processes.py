"""Nodes as processes, formatted and changed with the `stele` command as an administrator would."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chaos.process_cluster import NodeProcess, Ports
from stele.admin.quorum import QuorumDescription
from stele.aio import Admin

STELE = (sys.executable, "-m", "cli.main")
WAIT_S = 60.0
_POLL_S = 0.05


@dataclass
class QuorumProcesses:
    """Controllers 1, 2, … and brokers 101, 102, … that find the quorum by ``bootstrap``."""

    directory: Path
    cluster_id: str = "cXVvcnVtLWdyb3d0aC0xMQ"
    bootstrap: str = ""  # controller.quorum.bootstrap.servers of the nodes that come next
    nodes: dict[int, NodeProcess] = field(default_factory=dict)
    ports: Ports = field(default_factory=lambda: Ports(None))

    @property
    def bootstrap_servers(self) -> str:
        ports = [node.kafka_port for node in self.nodes.values() if node.kafka_port is not None]
        return ",".join(f"127.0.0.1:{port}" for port in ports)

    # ------------------------------------------------------------------------------- nodes

    def controller(self, node_id: int) -> NodeProcess:
        """Add a controller. The others find the quorum by the first one."""
        port, metrics = self.ports.controller(node_id), self.ports.metrics()
        self.bootstrap = self.bootstrap or f"127.0.0.1:{port}"
        settings = {
            "process.roles": "controller",
            "controller.listener": f"127.0.0.1:{port}",
        }
        return self._add(node_id, settings, metrics)

    def broker(self, node_id: int) -> NodeProcess:
        kafka, grpc, metrics = self.ports.kafka(), self.ports.grpc(), self.ports.metrics()
        settings = {
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://127.0.0.1:{kafka}",
            "grpc.listeners": f"PLAINTEXT://127.0.0.1:{grpc}",
        }
        return self._add(node_id, settings, metrics, kafka)

    def _add(
        self, node_id: int, settings: dict[str, str], metrics: int, kafka: int | None = None
    ) -> NodeProcess:
        directory = self.directory / f"{settings['process.roles']}-{node_id}"
        settings |= {
            "node.id": str(node_id),
            "log.dirs": str(directory / "data"),
            "metrics.listener": f"127.0.0.1:{metrics}",
            "controller.quorum.bootstrap.servers": self.bootstrap,
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
        }
        node = self.nodes[node_id] = NodeProcess(
            node_id, directory, settings, kafka, metrics_port=metrics
        )
        node.write_config()
        return node

    async def start(self, node: NodeProcess, *options: str) -> None:
        """Format it with ``options`` if it is new, and start it."""
        if not (node.directory / "data").exists():
            arguments = ["--config", str(node.config_file), "--cluster-id", self.cluster_id]
            await self.stele("format", *arguments, *options)
        node.spawn()

    def wipe(self, node: NodeProcess) -> None:
        """Replace the disk of a stopped node by an empty one."""
        assert not node.running
        shutil.rmtree(node.directory / "data")

    def kill(self, node: NodeProcess) -> None:
        assert node.process is not None
        node.process.kill()
        node.process.wait()

    async def stop(self, node: NodeProcess) -> int:
        """Send SIGTERM. Returns the exit code."""
        assert node.process is not None
        os.kill(node.pid, signal.SIGTERM)
        await self.until(lambda: not node.running, f"{node.name} stops")
        return node.process.wait()

    def end(self) -> None:
        for node in self.nodes.values():
            if node.running:
                self.kill(node)

    # ----------------------------------------------------------------------------- commands

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output and errors of the `stele` command."""
        environment = {**os.environ, "STELE_BOOTSTRAP_SERVER": self.bootstrap_servers}
        process = await asyncio.create_subprocess_exec(
            *STELE,
            *arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        out, errors = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), errors.decode()

    async def stele(self, *arguments: str) -> str:
        """The output of a command that succeeds."""
        code, out, errors = await self.run(*arguments)
        assert code == 0, f"stele {' '.join(arguments)}: {errors}"
        return out

    async def refusal(self, *arguments: str) -> str:
        """The one line of a failing command, without the lines about waiting."""
        code, out, errors = await self.run(*arguments)
        assert code == 1, f"stele {' '.join(arguments)}: {code}, {out}, {errors}"
        assert "Traceback" not in errors
        return errors.splitlines()[-1]

    async def describe(self) -> QuorumDescription:
        """As the command shows it, but without starting a process each time."""
        async with Admin(self.bootstrap_servers, on_wait=lambda _: None) as admin:
            return await admin.describe_quorum()

    async def voters(self) -> list[int]:
        return [each.replica_id for each in (await self.describe()).voters]

    async def directory_id(self, node_id: int) -> str:
        """The directory id by which the quorum knows the voter."""
        voter = (await self.describe()).voter(node_id)
        assert voter is not None
        return voter.directory_id

    async def leader(self) -> NodeProcess:
        leader_id = (await self.describe()).leader_id
        assert leader_id is not None
        return self.nodes[leader_id]

    async def add_voter(self, node: NodeProcess) -> str:
        return await self.stele("quorum", "add-voter", "--config", str(node.config_file))

    async def remove_voter(self, node_id: int) -> str:
        directory_id = await self.directory_id(node_id)
        arguments = ["--id", str(node_id), "--directory-id", directory_id]
        return await self.stele("quorum", "remove-voter", *arguments)

    async def until(
        self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S
    ) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():  # noqa: ASYNC110 - it is outside this process
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            logs = "\n".join(f"{each.name}:\n{each.log_tail()}" for each in self.nodes.values())
            raise AssertionError(f"{what}: not within {timeout_s:.0f} s\n{logs}") from None

    async def until_serving(self, brokers: int) -> None:
        """Wait until so many brokers are unfenced."""
        async with (
            asyncio.timeout(WAIT_S),
            Admin(self.bootstrap_servers, on_wait=lambda _: None) as admin,
        ):
            while await self._serving(admin) < brokers:  # noqa: ASYNC110 - they are elsewhere
                await asyncio.sleep(_POLL_S)

    async def _serving(self, admin: Admin) -> int:
        described = await admin.describe_cluster()
        return sum(not each.fenced for each in described.brokers)

    async def _observers(self) -> list[int]:
        return [each.replica_id for each in (await self.describe()).observers]

    async def until_observed(self, node_id: int) -> None:
        """Wait until the leader knows this controller as an observer."""
        async with asyncio.timeout(WAIT_S):
            while node_id not in await self._observers():  # noqa: ASYNC110 - it is elsewhere
                await asyncio.sleep(_POLL_S)
