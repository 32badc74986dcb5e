"""What a drill needs of the cluster that it attacks, and a cluster of processes as such a one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chaos.cluster_security import ADMIN, ClusterSecurity
from chaos.drills.process_faults import ProcessFaults
from chaos.process_cluster import START_TIMEOUT_S, ProcessCluster, is_ready
from chaos.security_move import SecurityMove
from stele.errors import SteleError
from stele.security.options import SecurityOptions


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int


class DrillCluster(Protocol):
    """Nodes that can be killed, paused, stopped and started. Nodes have their ids."""

    @property
    def kind(self) -> str:
        """``process`` or ``compose``."""
        ...

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def security(self) -> SecurityOptions:
        """How the drill's clients come in."""
        ...

    @property
    def nodes_entrance(self) -> tuple[str, SecurityOptions]:
        """Where and how an administrator comes in who needs no user."""
        ...

    @property
    def secrets(self) -> ClusterSecurity:
        """The certificates and users of a secure cluster. Raises SteleError for others."""
        ...

    @property
    def move(self) -> SecurityMove:
        """The way of a cluster of plaintext to TLS. Raises SteleError for others."""
        ...

    @property
    def broker_ids(self) -> list[int]: ...

    @property
    def controller_ids(self) -> list[int]: ...

    def kafka_address(self, broker_id: int) -> Address: ...

    async def kill(self, node_id: int) -> None:
        """SIGKILL. The process is gone when this returns."""
        ...

    async def start(self, node_id: int) -> None:
        """Start a node that was killed or stopped. It need not serve when this returns."""
        ...

    async def stop(self, node_id: int) -> None:
        """SIGTERM, and wait for the end of the process."""
        ...

    async def pause(self, node_id: int) -> None:
        """SIGSTOP: the node neither works nor closes its connections."""
        ...

    async def resume(self, node_id: int) -> None: ...

    async def cut(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Drop what some nodes send to others, without telling either. Clients reach all of them.
        Raises SteleError where that cannot be done."""
        ...

    async def reconnect(self) -> None:
        """Take all cuts back."""
        ...

    async def fill_disk(self, node_id: int) -> None:
        """Leave no room on a node's disk. This and what follows raise SteleError where it cannot
        be done."""
        ...

    async def free_disk(self, node_id: int) -> None: ...

    async def slow_disk(self, node_id: int, writes_per_s: int) -> None:
        """Let a node write only so many times a second."""
        ...

    async def restore_disk(self, node_id: int) -> None: ...

    async def slow_network(self, node_id: int, delay_ms: float) -> None:
        """Delay the requests to a node's listener and its answers; 0 ends the delay."""
        ...

    async def set_clock(self, node_id: int, ahead_s: int) -> None:
        """Let a node's clock be so far ahead of the true time."""
        ...

    async def set_version(self, node_id: int, *, is_earlier: bool) -> None:
        """Let a node be of the earlier version, or of this one, when it is started next."""
        ...

    async def ready(self, node_id: int) -> bool:
        """Whether the node says that it does its work (``/readyz``)."""
        ...

    async def open(self) -> None:
        """Start all nodes and wait until the brokers serve."""
        ...

    async def close(self) -> None:
        """End all nodes. Idempotent."""
        ...


class DrillProcesses:
    """A cluster of processes in a directory."""

    kind = "process"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        faults: ProcessFaults | None = None,
        *,
        is_secure: bool = False,
        moves: bool = False,
    ) -> None:
        """``moves``: it begins in plaintext and moves to TLS."""
        self._cluster = ProcessCluster(directory, settings=settings, is_secure=is_secure)
        self._moves = moves
        self._move: SecurityMove | None = None
        self._faults = faults or ProcessFaults(())
        self._paused: set[int] = set()

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap_servers

    @property
    def security(self) -> SecurityOptions:
        return self.secrets.of_user(ADMIN) if self._cluster.is_secure else {}

    @property
    def nodes_entrance(self) -> tuple[str, SecurityOptions]:
        return self._cluster.admin_servers, self._cluster.admin_security

    @property
    def secrets(self) -> ClusterSecurity:
        if not self._cluster.is_secure:
            raise SteleError("the cluster is not secure")
        return self._cluster.security

    @property
    def move(self) -> SecurityMove:
        if self._move is None:
            raise SteleError("the cluster does not move to TLS")
        return self._move

    @property
    def broker_ids(self) -> list[int]:
        return self._cluster.broker_ids

    @property
    def controller_ids(self) -> list[int]:
        return self._cluster.controller_ids

    def kafka_address(self, broker_id: int) -> Address:
        port = self._cluster.nodes[broker_id].kafka_port
        assert port is not None
        return Address("127.0.0.1", port)

    async def kill(self, node_id: int) -> None:
        self._cluster.kill(node_id)
        self._paused.discard(node_id)

    async def start(self, node_id: int) -> None:
        self._cluster.nodes[node_id].spawn()

    async def stop(self, node_id: int) -> None:
        await self._cluster.stop_node(node_id)

    async def pause(self, node_id: int) -> None:
        self._cluster.pause(node_id)
        self._paused.add(node_id)

    async def resume(self, node_id: int) -> None:
        self._cluster.resume(node_id)
        self._paused.discard(node_id)

    async def cut(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        raise SteleError(
            "processes on one machine cannot be cut off from one another: run it with "
            "--cluster compose"
        )

    async def reconnect(self) -> None:
        """There are no cuts."""

    async def fill_disk(self, node_id: int) -> None:
        await asyncio.to_thread(self._faults.fill_disk, self._cluster.nodes[node_id])

    async def free_disk(self, node_id: int) -> None:
        self._faults.free_disk(self._cluster.nodes[node_id])

    async def slow_disk(self, node_id: int, writes_per_s: int) -> None:
        self._faults.slow_disk(self._cluster.nodes[node_id], writes_per_s)

    async def restore_disk(self, node_id: int) -> None:
        self._faults.restore_disk(self._cluster.nodes[node_id])

    async def slow_network(self, node_id: int, delay_ms: float) -> None:
        self._faults.slow_network(self._cluster.nodes[node_id], delay_ms)

    async def set_clock(self, node_id: int, ahead_s: int) -> None:
        self._faults.set_clock(self._cluster.nodes[node_id], ahead_s)

    async def set_version(self, node_id: int, *, is_earlier: bool) -> None:
        self._faults.set_version(self._cluster.nodes[node_id], is_earlier=is_earlier)

    async def ready(self, node_id: int) -> bool:
        if node_id in self._paused:  # it would not answer
            return False
        return await is_ready("127.0.0.1", self._cluster.nodes[node_id].metrics_port)

    async def open(self) -> None:
        self._cluster.lay_out()
        await self._faults.prepare(self._cluster.nodes)
        await self._cluster.start(timeout_s=START_TIMEOUT_S)
        if self._moves:
            self._move = SecurityMove(self._cluster)

    async def close(self) -> None:
        await asyncio.shield(self._cluster.stop(timeout_s=0))
        await self._faults.close()
