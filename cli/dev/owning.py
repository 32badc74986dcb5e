"""The owner of a cluster: the process of ``stele dev``, in the foreground or detached.

It starts the nodes, reports those that end, does what ``stele dev stop`` and ``restart`` ask, and
writes down how the cluster is. The nodes end with it, however it ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from chaos.process_cluster import START_TIMEOUT_S, NodeProcess, ProcessCluster, is_ready
from cli.dev.addresses import nodes_of
from cli.dev.cluster_record import (
    FAILED,
    SERVING,
    STARTING,
    STOPPED,
    STOPPING,
    ClusterRecord,
    NodeRecord,
    write_record,
)
from cli.dev.control import RequestServer, Say
from cli.dev.process_identity import ProcessIdentity
from cli.output import CommandError
from stele.errors import SteleError
from stele.real import RealClock

if TYPE_CHECKING:
    from cli.dev.console import DevConsole

_LOOK_S: Final = 0.2
_LOOK_WHILE_STOPPING_S: Final = 0.05


class ClusterOwner:
    def __init__(
        self,
        cluster: ProcessCluster,
        console: DevConsole | None,
        tell: Say,
        arguments: Sequence[str],
        *,
        is_detached: bool,
    ) -> None:
        """``tell``: where lines for people go."""
        self._cluster = cluster
        self._console = console
        self._tell = tell
        self._arguments = tuple(arguments)
        self._is_detached = is_detached
        self._clock = RealClock()
        self._identity = ProcessIdentity.of(os.getpid())
        self._life: asyncio.Task[None] | None = None
        self._restart: asyncio.Task[None] | None = None
        self._restarted: NodeProcess | None = None
        self._state = STARTING
        self._since_ms = self._clock.time_ms()
        self._reason: str | None = None
        self._written: ClusterRecord | None = None
        self._seen: dict[int, ProcessIdentity | None] = {}  # by process id
        self._ends: dict[int, str] = {}  # by process id
        self._stop_listeners: list[Say] = []
        self._over = asyncio.Event()

    async def run(self, announce: Callable[[float], None]) -> None:
        """``announce`` gets the seconds after which the cluster serves. Raises CommandError or
        SteleError if it cannot be started, or when all nodes have ended."""
        self._cluster.claim()
        self._write(STARTING)
        requests = RequestServer(self._cluster.directory, self._handle)
        await requests.start()
        loop = asyncio.get_running_loop()
        self._life = loop.create_task(self._live(announce))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end, number.name)
        failure: str | None = "the process that owns the cluster failed"
        try:
            await self._life
        except asyncio.CancelledError:
            failure = None
            again = "" if self._is_detached else " (again Ctrl-C: at once)"
            self._tell(f"stopping{again}")
        except (CommandError, SteleError) as error:
            failure = str(error)
            raise
        finally:
            await self._stop()
            self._reason = failure or self._reason
            self._write(STOPPED if failure is None else FAILED)
            requests.withdraw()
            self._cluster.release()
            self._over.set()
            await requests.close()

    async def _live(self, announce: Callable[[float], None]) -> None:
        cluster, console = self._cluster, self._console
        began = self._clock.monotonic()
        if console is not None:
            console.listen()
        await cluster.start()
        if console is not None:
            console.start(cluster)
        self._write(SERVING)
        announce(self._clock.monotonic() - began)
        gone: set[int] = set()
        while True:
            await asyncio.sleep(_LOOK_S)
            for node in nodes_of(cluster):
                if node.running or node is self._restarted:
                    gone.discard(node.node_id)
                elif node.node_id not in gone:
                    gone.add(node.node_id)
                    self._tell(f"{node.name} has ended: {node.last_words()}")
                    self._tell(f"  its log       {node.log_file}")
                    self._tell(f"  start it with stele server {node.config_file}")
            if console is not None and console.has_ended:
                self._tell("the console has ended; stele console starts another one")
                console = None
            self._write(SERVING)
            if len(gone) == len(cluster.nodes):
                raise CommandError(f"all nodes have ended; their logs are in {cluster.directory}")

    def _end(self, reason: str) -> None:
        assert self._life is not None
        if self._life.cancel():
            self._reason = reason

    async def _stop(self) -> None:
        """In good order; a second signal kills what is left."""
        self._write(STOPPING)
        if self._restart is not None:
            self._restart.cancel()
        loop = asyncio.get_running_loop()
        stopping = loop.create_task(self._stop_all())
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopping.cancel)
        left = [node for node in nodes_of(self._cluster) if node.running]
        while not stopping.done():
            await asyncio.wait({stopping}, timeout=_LOOK_WHILE_STOPPING_S)
            left = self._report_ends(left)
        if stopping.cancelled():
            await self._cluster.stop_nodes(timeout_s=0)
        else:
            stopping.result()
        self._report_ends(left)

    async def _stop_all(self) -> None:
        """The console first: its pages would show how the nodes end."""
        if self._console is not None:
            await self._console.stop()
        await self._cluster.stop_nodes()

    def _report_ends(self, nodes: Sequence[NodeProcess]) -> list[NodeProcess]:
        """The nodes that still run."""
        for node in nodes:
            if not node.running:
                self._say_of_stop(_how_it_stopped(node))
        return [node for node in nodes if node.running]

    def _say_of_stop(self, line: str) -> None:
        for say in self._stop_listeners:
            say(line)
        if self._is_detached:
            self._tell(line)

    # ------------------------------------------------------------------------------ requests

    async def _handle(self, request: dict[str, Any], say: Say) -> dict[str, Any]:
        match request:
            case {"request": "stop"}:
                return await self._stopped(say)
            case {"request": "restart", "node": str(name)}:
                return await self._restarted_node(name, say)
        raise CommandError(f"{request!r} is no request to the owner of a cluster")

    async def _stopped(self, say: Say) -> dict[str, Any]:
        self._stop_listeners.append(say)
        self._end("stele dev stop")
        await self._over.wait()
        assert self._written is not None
        return {"nodes": {each.name: each.ended for each in self._written.nodes}}

    async def _restarted_node(self, name: str, say: Say) -> dict[str, Any]:
        node = self._node(name)
        if self._state != SERVING:
            raise CommandError(f"the cluster is {self._state}: wait until it serves")
        if self._restarted is not None:
            raise CommandError(f"{self._restarted.name} is being restarted: one after the other")
        self._restarted = node
        self._restart = asyncio.get_running_loop().create_task(self._renew(node, say))
        try:
            await self._restart
        except asyncio.CancelledError:
            if not self._restart.cancelled():
                raise
            raise CommandError(f"the cluster was stopped while {node.name} restarted") from None
        finally:
            self._restart = self._restarted = None
            if self._state == SERVING:
                self._write(SERVING)
        return {"node": node.name, "pid": node.pid}

    async def _renew(self, node: NodeProcess, say: Say) -> None:
        if node.running:
            say(f"{node.name} (pid {node.pid}) stops")
            self._cluster.resume(node.node_id)  # a suspended process acts on no SIGTERM
            await self._cluster.stop_node(node.node_id)
            say(_how_it_stopped(node))
        say(f"{node.name} starts")
        began = self._clock.monotonic()
        await self._cluster.restart(node.node_id)
        await self._wait_ready(node)
        say(f"{node.name} (pid {node.pid}) serves after {self._clock.monotonic() - began:.1f} s")
        self._tell(f"{node.name} was restarted")

    async def _wait_ready(self, node: NodeProcess) -> None:
        """A controller, too."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not await is_ready("127.0.0.1", node.metrics_port):
                    if not node.running:
                        raise CommandError(f"{node.name} has ended: {node.last_words()}")
                    await asyncio.sleep(_LOOK_WHILE_STOPPING_S)
        except TimeoutError:
            raise CommandError(
                f"{node.name} is not ready after {START_TIMEOUT_S:.0f} s; its log: {node.log_file}"
            ) from None

    def _node(self, name: str) -> NodeProcess:
        assert self._written is not None
        return self._cluster.nodes[self._written.node(name).node_id]

    # -------------------------------------------------------------------------------- record

    def _write(self, state: str) -> None:
        """If anything has changed. The lock is held."""
        if state != self._state:
            self._state, self._since_ms = state, self._clock.time_ms()
        assert self._identity is not None
        record = ClusterRecord(
            state,
            self._since_ms,
            self._reason,
            self._identity,
            self._is_detached,
            self._arguments,
            self._cluster.cluster_id,
            self._cluster.bootstrap_servers,
            tuple(self._record_of(node) for node in nodes_of(self._cluster)),
            None if self._console is None else self._console.address,
        )
        if record != self._written:
            write_record(self._cluster.directory, record)
            self._written = record

    def _record_of(self, node: NodeProcess) -> NodeRecord:
        identity = ended = None
        if node.process is not None:
            pid = node.process.pid
            if pid not in self._seen:
                self._seen[pid] = ProcessIdentity.of(pid)
            identity = self._seen[pid]
            if not node.running:
                if pid not in self._ends:
                    self._ends[pid] = _end_of(node)
                ended = self._ends[pid]
        return NodeRecord(
            node.node_id,
            node.name,
            identity,
            ended,
            node.kafka_port,
            node.grpc_port,
            node.settings.get("controller.listener"),
            node.metrics_port,
            str(node.log_file),
            str(node.config_file),
        )


def _end_of(node: NodeProcess) -> str:
    code = node.process.returncode if node.process is not None else None
    if code is None or code == 0:
        return "stopped"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}: {node.last_words()}"


def _how_it_stopped(node: NodeProcess) -> str:
    end = _end_of(node)
    return f"{node.name} has stopped" if end == "stopped" else f"{node.name} has ended: {end}"
