"""A cluster of Apache Kafka on this machine: 3 controllers and 3 brokers, as ``bench.peer`` needs.

Java runs it with the heap and the garbage collector of Kafka's own start script.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from bench.maven import Coordinates, fetched
from chaos.process_cluster import Ports

_IDS: Final = {"controller": (101, 102, 103), "broker": (1, 2, 3)}
_LOGGING: Final = Coordinates("org.slf4j", "slf4j-simple", "1.7.36")
_CLUSTER_ID: Final = "c3RlbGUtYmVuY2gtcGVlcg"
_JAVA: Final = (
    *("java", "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_STOP_S: Final = 20.0
_POLL_S: Final = 0.05
_LOG_LINES: Final = 5


class KafkaError(Exception):
    """A process of Kafka has ended. The text says why."""


def jars(version: str, directory: Path) -> Path:
    """The directory with Kafka's jars of that version. They are fetched unless they are there.
    Raises MavenError."""
    kafka = Coordinates("org.apache.kafka", "kafka_2.13", version)
    return fetched(f"kafka-{version}", (kafka, _LOGGING), directory)


class KafkaCluster:
    """Starts processes in ``directory`` and ends them. All listen on the loopback interface."""

    def __init__(self, directory: Path, jars: Path) -> None:
        self._directory = directory
        self._jars = jars
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        ports = Ports(None)
        self._ports = {each: ports.kafka() for ids in _IDS.values() for each in ids}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{self._ports[each]}" for each in _IDS["broker"])

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    async def start(self) -> None:
        """Format and start all nodes, and wait until each broker listens. Raises KafkaError."""
        nodes = [(role, each) for role, ids in _IDS.items() for each in ids]
        await asyncio.gather(*(self._format(role, each) for role, each in nodes))
        for _, each in nodes:
            self._processes[each] = await self._java(each, "kafka.Kafka", str(self._config(each)))
        for each in _IDS["broker"]:
            await self._wait_listening(each)

    async def stop(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in self._processes.values():
            async with asyncio.timeout(_STOP_S):
                await process.wait()

    async def _format(self, role: str, node_id: int) -> None:
        voters = ",".join(f"{each}@127.0.0.1:{self._ports[each]}" for each in _IDS["controller"])
        listener = "CONTROLLER" if role == "controller" else "PLAINTEXT"
        settings = {
            "process.roles": role,
            "node.id": node_id,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://127.0.0.1:{self._ports[node_id]}",
            "log.dirs": self._directory / str(node_id),
            "offsets.topic.replication.factor": 3,
            "default.replication.factor": 3,
            "log.retention.check.interval.ms": 10_000,  # warming would fill the disk
        }
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        self._config(node_id).write_text("".join(lines))
        tool = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID)
        process = await self._java(node_id, *tool, "-c", str(self._config(node_id)))
        if await process.wait() != 0:
            raise KafkaError(self._ended(node_id))

    async def _java(self, node_id: int, *arguments: str) -> asyncio.subprocess.Process:
        with self._log(node_id).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *_JAVA, "-cp", f"{self._jars}/*", *arguments, stdout=log, stderr=subprocess.STDOUT
            )

    async def _wait_listening(self, node_id: int) -> None:
        while True:
            if self._processes[node_id].returncode is not None:
                raise KafkaError(self._ended(node_id))
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._ports[node_id])
            except OSError:
                await asyncio.sleep(_POLL_S)
            else:
                writer.close()
                return

    def _config(self, node_id: int) -> Path:
        return self._directory / f"{node_id}.properties"

    def _log(self, node_id: int) -> Path:
        return self._directory / f"{node_id}.log"

    def _ended(self, node_id: int) -> str:
        last = self._log(node_id).read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return f"Kafka's node {node_id} has ended. The last lines of its log:\n" + "\n".join(last)


@contextlib.asynccontextmanager
async def fresh_kafka(jars: Path) -> AsyncIterator[KafkaCluster]:
    """A cluster that is not started, in a temporary directory, which is removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="stele-bench-kafka-"))
    cluster = KafkaCluster(directory, jars)
    try:
        yield cluster
    finally:
        await cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
