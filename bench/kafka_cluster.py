"""Nodes of Apache Kafka on this machine, and a cluster of 3 controllers and 3 brokers of them.

Java runs it with the heap and the garbage collector of Kafka's own start script.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
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


class KafkaNode:
    """One process of Kafka. Its configuration, log and data are in ``directory``."""

    def __init__(
        self,
        directory: Path,
        jars: Path,
        node_id: int,
        settings: Mapping[str, object],
        features: Sequence[str] = (),
    ) -> None:
        """``features``: those that are not enabled by themselves, with their levels."""
        self._node_id = node_id
        self._config = directory / f"{node_id}.properties"
        self._log = directory / f"{node_id}.log"
        self._jars = jars
        self._features = [word for each in features for word in ("--feature", each)]
        self._settings = {
            "node.id": node_id,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": directory / str(node_id),
            "log.retention.check.interval.ms": 10_000,  # warming would fill the disk
            **settings,
        }
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """None: it has not been started."""
        return None if self._process is None else self._process.pid

    async def format(self) -> None:
        """Raises KafkaError."""
        lines = [f"{key}={value}\n" for key, value in self._settings.items()]
        self._config.write_text("".join(lines))
        tool = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID)
        process = await self._java(*tool, "-c", str(self._config), *self._features)
        if await process.wait() != 0:
            raise KafkaError(self._ended())

    async def start(self) -> None:
        self._process = await self._java("kafka.Kafka", str(self._config))

    async def wait_listening(self, port: int) -> None:
        """Raises KafkaError."""
        assert self._process is not None
        while True:
            if self._process.returncode is not None:
                raise KafkaError(self._ended())
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(_POLL_S)
            else:
                writer.close()
                return

    async def stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            async with asyncio.timeout(_STOP_S):
                await self._process.wait()

    async def _java(self, *arguments: str) -> asyncio.subprocess.Process:
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *_JAVA, "-cp", f"{self._jars}/*", *arguments, stdout=log, stderr=subprocess.STDOUT
            )

    def _ended(self) -> str:
        last = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return f"Kafka's node {self._node_id} has ended. The last lines of its log:\n" + "\n".join(
            last
        )


class KafkaCluster:
    """Starts processes in ``directory`` and ends them. All listen on the loopback interface."""

    def __init__(
        self,
        directory: Path,
        jars: Path,
        settings: Mapping[str, object],
        features: Sequence[str],
    ) -> None:
        ports = Ports(None)
        self._ports = {each: ports.kafka() for ids in _IDS.values() for each in ids}
        voters = ",".join(f"{each}@127.0.0.1:{self._ports[each]}" for each in _IDS["controller"])
        self._nodes: dict[int, KafkaNode] = {}
        for role, listener in (("controller", "CONTROLLER"), ("broker", "PLAINTEXT")):
            for node_id in _IDS[role]:
                of_node = {
                    "process.roles": role,
                    "controller.quorum.voters": voters,
                    "listeners": f"{listener}://127.0.0.1:{self._ports[node_id]}",
                    "offsets.topic.replication.factor": 3,
                    "default.replication.factor": 3,
                    **settings,
                }
                self._nodes[node_id] = KafkaNode(directory, jars, node_id, of_node, features)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{self._ports[each]}" for each in _IDS["broker"])

    def pids(self) -> list[int]:
        return [node.pid for node in self._nodes.values() if node.pid is not None]

    def broker_pids(self) -> list[int]:
        brokers = [self._nodes[each] for each in _IDS["broker"]]
        return [node.pid for node in brokers if node.pid is not None]

    async def start(self) -> None:
        """Format and start all nodes, and wait until each broker listens. Raises KafkaError."""
        await asyncio.gather(*(node.format() for node in self._nodes.values()))
        for node in self._nodes.values():
            await node.start()
        for each in _IDS["broker"]:
            await self._nodes[each].wait_listening(self._ports[each])

    async def stop(self) -> None:
        for node in self._nodes.values():
            await node.stop()


@contextlib.asynccontextmanager
async def fresh_kafka(
    jars: Path, *, settings: Mapping[str, object] | None = None, features: Sequence[str] = ()
) -> AsyncIterator[KafkaCluster]:
    """A cluster that is not started, in a temporary directory, which is removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="stele-bench-kafka-"))
    cluster = KafkaCluster(directory, jars, settings or {}, features)
    try:
        yield cluster
    finally:
        await cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
