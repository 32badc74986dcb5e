"""A cluster of containers as a drill needs it: the compose file of ``deploy/``, with a project and
volumes of its own, which are removed at the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from chaos.cluster_security import ClusterSecurity
from chaos.compose_cluster import (
    ComposeCluster,
    ContainerError,
    cutting_unavailable,
    unavailable,
)
from chaos.drills.cluster import Address, DrillCluster
from chaos.drills.drill import Drill
from chaos.faults import slow_disks
from chaos.faults.slow_disks import SlowDisks, group_of_container
from chaos.process_cluster import is_ready
from chaos.security_move import SecurityMove
from stele.errors import SteleError
from stele.security.options import SecurityOptions

_METRICS_PORT: Final = 9404
_SERVICES: Final = {
    1: "controller-1",
    2: "controller-2",
    3: "controller-3",
    101: "broker-1",
    102: "broker-2",
    103: "broker-3",
}
_KAFKA_PORTS: Final = {101: 9092, 102: 9093, 103: 9094}


class DrillContainers:
    """Calls of the engine take a tenth of a second or more, so they run beside the event loop."""

    kind = "compose"
    bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in _KAFKA_PORTS.values())

    def __init__(self, cluster: ComposeCluster) -> None:
        self._cluster = cluster
        self._metrics_ports = {
            node_id: cluster.published_port(service, _METRICS_PORT)
            for node_id, service in _SERVICES.items()
        }
        self._paused: set[int] = set()
        self._slow: SlowDisks | None = None

    @property
    def security(self) -> SecurityOptions:
        return {}

    @property
    def nodes_entrance(self) -> tuple[str, SecurityOptions]:
        return self.bootstrap_servers, {}

    @property
    def secrets(self) -> ClusterSecurity:
        raise SteleError("the cluster of containers is not secure")

    @property
    def move(self) -> SecurityMove:
        raise SteleError("the cluster of containers does not move to TLS: run it on processes")

    @property
    def broker_ids(self) -> list[int]:
        return list(_KAFKA_PORTS)

    @property
    def controller_ids(self) -> list[int]:
        return [node for node in _SERVICES if node not in _KAFKA_PORTS]

    def kafka_address(self, broker_id: int) -> Address:
        return Address("127.0.0.1", _KAFKA_PORTS[broker_id])

    async def kill(self, node_id: int) -> None:
        await asyncio.to_thread(self._cluster.kill, _SERVICES[node_id])
        self._paused.discard(node_id)

    async def start(self, node_id: int) -> None:
        await asyncio.to_thread(self._cluster.start, _SERVICES[node_id])

    async def stop(self, node_id: int) -> None:
        await asyncio.to_thread(self._cluster.stop, _SERVICES[node_id])

    async def pause(self, node_id: int) -> None:
        await asyncio.to_thread(self._cluster.pause, _SERVICES[node_id])
        self._paused.add(node_id)

    async def resume(self, node_id: int) -> None:
        await asyncio.to_thread(self._cluster.unpause, _SERVICES[node_id])
        self._paused.discard(node_id)

    async def cut(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        if reason := cutting_unavailable():
            raise SteleError(f"{reason}: nodes cannot be cut off from one another here")
        named = [[_SERVICES[node] for node in nodes] for nodes in (sources, targets)]
        await asyncio.to_thread(self._cluster.cut, *named)

    async def reconnect(self) -> None:
        await asyncio.to_thread(self._cluster.heal)

    async def fill_disk(self, node_id: int) -> None:
        raise SteleError("the disks of containers cannot be filled: run it on processes")

    async def free_disk(self, node_id: int) -> None:
        """None was filled."""

    async def slow_disk(self, node_id: int, writes_per_s: int) -> None:
        if reason := slow_disks.unavailable():
            raise SteleError(reason)
        if self._slow is None:
            self._slow = SlowDisks(Path("/"))
        self._slow.limit(self._group(node_id), writes_per_s)

    async def restore_disk(self, node_id: int) -> None:
        if self._slow is not None:
            self._slow.release(self._group(node_id))

    def _group(self, node_id: int) -> Path:
        return group_of_container(self._cluster.container_id(_SERVICES[node_id]))

    async def slow_network(self, node_id: int, delay_ms: float) -> None:
        raise SteleError("the network of containers cannot be made slow: run it on processes")

    async def set_clock(self, node_id: int, ahead_s: int) -> None:
        raise SteleError("containers have the clock of the machine: run it on processes")

    async def set_version(self, node_id: int, *, is_earlier: bool) -> None:
        raise SteleError("all containers have one image: run it on processes")

    async def ready(self, node_id: int) -> bool:
        if node_id in self._paused:  # it would not answer
            return False
        return await is_ready("127.0.0.1", self._metrics_ports[node_id])

    async def open(self) -> None:
        await asyncio.to_thread(self._cluster.up)

    async def close(self) -> None:
        await asyncio.shield(asyncio.to_thread(self._cluster.down))

    def save_logs(self, directory: Path) -> None:
        """What the containers have said."""
        directory.mkdir(parents=True, exist_ok=True)
        for service in _SERVICES.values():
            (directory / f"{service}.log").write_text(self._cluster.logs(service))


def _override(settings: Mapping[str, str]) -> dict[str, object]:
    """Settings of nodes as a compose file to be merged: environment variables of every service."""
    environment = {
        "STELE_" + key.upper().replace(".", "_"): value for key, value in settings.items()
    }
    return {"services": {name: {"environment": environment} for name in _SERVICES.values()}}


@asynccontextmanager
async def containers(drill: Drill, logs: Path) -> AsyncIterator[DrillCluster]:
    """A cluster of containers. Its logs are kept in ``logs``. Raises SteleError."""
    if reason := unavailable():
        raise SteleError(f"{reason}; start one, or run the drill on processes")
    try:
        cluster = await asyncio.to_thread(_prepare, logs, drill.settings)
        await cluster.open()
        try:
            yield cluster
        finally:
            await asyncio.to_thread(cluster.save_logs, logs)
            await cluster.close()
    except ContainerError as error:
        # What compose says before its last line is progress.
        raise SteleError(f"the containers fail: {str(error).splitlines()[-1].strip()}") from error


def _prepare(directory: Path, settings: Mapping[str, str]) -> DrillContainers:
    directory.mkdir(parents=True, exist_ok=True)
    override = directory / "override.json"
    override.write_text(json.dumps(_override(settings)))
    return DrillContainers(ComposeCluster(overrides=[override]))
