"""Clusters to measure, and the CPU, memory and requests of their processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.process_cluster import NodeProcess, ProcessCluster
from stele.aio import Admin
from stele.errors import BulkError

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_POLL_S = 0.05
_CLIENT_END_S = 10.0


@contextlib.asynccontextmanager
async def fresh_cluster(
    settings: Mapping[str, str] | None = None,
    *,
    start: bool = True,
    controllers: int = 3,
    brokers: int = 3,
) -> AsyncIterator[ProcessCluster]:
    """A cluster in a temporary directory, which is removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="stele-bench-"))
    cluster = ProcessCluster(
        directory, controllers=controllers, brokers=brokers, settings=settings or {}
    )
    try:
        if start:
            await cluster.start()
        yield cluster
    finally:
        await cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


async def wait_whole(admin: Admin, names: list[str], *, timeout_s: float = 60.0) -> None:
    """Wait until every partition of the topics has a leader and a complete ISR."""
    async with asyncio.timeout(timeout_s):
        while not await _are_whole(admin, names):  # noqa: ASYNC110 - it is in other processes
            await asyncio.sleep(_POLL_S)


async def drawn_leader(admin: Admin, topic: str, rng: random.Random) -> tuple[int, set[int]]:
    """One of the brokers that lead partitions of the topic, and the partitions that it leads."""
    (described,) = await admin.describe_topics([topic])
    leaders = {each.partition: each.leader for each in described.partitions}
    victim = rng.choice(sorted({each for each in leaders.values() if each is not None}))
    return victim, {partition for partition, leader in leaders.items() if leader == victim}


async def _are_whole(admin: Admin, names: list[str]) -> bool:
    try:
        topics = await admin.describe_topics(names)
    except BulkError:  # the broker that answers does not know a new topic yet
        return False
    partitions = [each for topic in topics for each in topic.partitions]
    return all(each.leader is not None and not each.is_under_replicated for each in partitions)


# --------------------------------------------------------------------------- processes


def children(pid: int) -> list[int]:
    """The child processes of a process: the helpers of a node."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{thread}/children").read_text()
            found += [int(child) for child in text.split()]
    return sorted(found)


def all_pids(cluster: ProcessCluster) -> list[int]:
    """The nodes of a cluster and their helpers."""
    nodes = [node.pid for node in cluster.nodes.values() if node.running]
    return nodes + [child for pid in nodes for child in children(pid)]


def cpu_s(pid: int) -> float:
    """User and system time of a process, including its ended threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


async def cpu_percent(pids: Sequence[int], seconds: float) -> float:
    """CPU of these processes in the next seconds, in percent of one core."""
    before, began = sum(map(cpu_s, pids)), time.perf_counter()
    await asyncio.sleep(seconds)
    return 100 * (sum(map(cpu_s, pids)) - before) / (time.perf_counter() - began)


def rss_mib(pid: int) -> float:
    """Resident memory, with shared pages counted in full."""
    return _memory_mib(f"/proc/{pid}/status", "VmRSS")


def pss_mib(pid: int) -> float:
    """Resident memory, with each shared page divided among its users."""
    return _memory_mib(f"/proc/{pid}/smaps_rollup", "Pss")


def _memory_mib(path: str, name: str) -> float:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"{path} has no {name}")


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds of some nodes and of their helper processes."""

    nodes: float
    helpers: float

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.nodes - other.nodes, self.helpers - other.helpers)


def cpu_of(nodes: Iterable[NodeProcess]) -> Cpu:
    pids = [node.pid for node in nodes]
    return Cpu(
        sum(cpu_s(pid) for pid in pids),
        sum(cpu_s(child) for pid in pids for child in children(pid)),
    )


def switches_of(pids: Iterable[int]) -> int:
    """How often the threads of these processes left a core, by themselves or not."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for line in (task / "status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"):
                    total += int(value)
    return total


# ----------------------------------------------------------------------------- metrics


def metrics_of(node: NodeProcess) -> dict[str, float]:
    """Every sample of the node's ``/metrics``, by name and labels."""
    url = f"http://127.0.0.1:{node.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    samples = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    return samples


def requests_of(nodes: Iterable[NodeProcess], *apis: str) -> float:
    """The number of requests of these APIs that the brokers have answered."""
    names = [f'stele_requests_total{{api="{api}"}}' for api in apis]
    return sum(metrics_of(node).get(name, 0.0) for node in nodes for name in names)


# ------------------------------------------------------------------------------ clients


class ClientError(Exception):
    """A client process ended before it answered."""


class ClientProcess:
    """A client in its own process (``bench.clients``). Both sides write lines of JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, job: Mapping[str, object]) -> ClientProcess:
        """Start it and wait until it is connected and warm."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.clients",
            json.dumps(job),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        client = cls(process)
        try:
            await client._receive()
        except BaseException:
            await client.close()
            raise
        return client

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, **command: object) -> dict[str, float]:
        """Send a command. Returns what the client measured."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        return await self._receive()

    async def _receive(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise ClientError(f"a client ended with exit code {await self._process.wait()}")
        answer: dict[str, float] = json.loads(line)
        return answer

    async def close(self) -> None:
        """End it, by force if it does not end by itself."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _CLIENT_END_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
