"""What connections cost a node: new ones, idle ones, refused ones, and all clients at once.

    python -m bench connections [--seconds 5] [--rounds 3] [--idle 2000] [--storm 500] [--json]

New and refused connections come from another process, as fast as the node takes them. Meanwhile
this process sends small requests on a connection that is open already, and measures how long each
takes. CPU is that of the node's process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import uvloop

from bench.connection_clients import ask, connect
from bench.processes import ClientProcess
from bench.report import (
    CONNECTION_CPU,
    CONNECTION_MEMORY,
    REFUSAL_CPU,
    STORM_TURN,
    Cell,
    Report,
    percentile,
)
from bench.secure import Certificates, Server, server
from stele.admin.descriptions import ConfigResource
from stele.aio import Admin

LISTENER: Final = "PLAINTEXT"
WORKERS: Final = 32
LIMIT: Final = 100
_WARM_S: Final = 1.0
_SETTLE_S: Final = 1.0
_FIRST: Final = 20  # connections that make what all of them share
_PAUSE_S: Final = 0.005  # between small requests


class Polite:
    """Small requests on a connection that is open already, and how long each took."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._took_ms: list[float] = []

    async def keep_asking(self) -> None:
        while True:
            began = time.perf_counter()
            if not await ask(self._connection):
                raise RuntimeError("the node has closed the polite client's connection")
            self._took_ms.append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(_PAUSE_S)

    def figures(self) -> list[Cell]:
        return [percentile(self._took_ms, 50), percentile(self._took_ms, 99), max(self._took_ms)]


@contextlib.asynccontextmanager
async def _beside(polite: socket.socket) -> AsyncIterator[Polite]:
    client = Polite(polite)
    asking = asyncio.ensure_future(client.keep_asking())
    try:
        yield client
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking


async def _flood(node: Server, polite: socket.socket, seconds: float, counted: str) -> list[Cell]:
    """A row of connections that all end in the same way: ``answered`` or ``closed``."""
    job = {"client": "connecting", "port": node.ports[LISTENER], "workers": WORKERS}
    client = await ClientProcess.start(job)
    try:
        await client.ask(do="throughput", seconds=_WARM_S)
        await node.ask("turns")
        await node.ask("busy")
        before = await node.ask("cpu")
        async with _beside(polite) as beside:
            told = await client.ask(do="throughput", seconds=seconds)
        used = await node.ask("cpu") - before
    finally:
        await client.close()
    count = told[counted]
    if count != told["answered"] + told["closed"]:
        raise RuntimeError(f"not all connections were {counted}: {told}")
    turns = [await node.ask("turns"), await node.ask("busy")]
    return [count / told["seconds"], 1e6 * used / count, *beside.figures(), *turns]


async def floods(made: Certificates, options: argparse.Namespace, report: Report) -> None:
    """New connections, and then refused ones: the node is at its limit."""
    rows: list[list[Cell]] = []
    cpu: dict[str, list[float]] = {"answered": [], "closed": []}
    async with server(made.node) as node, contextlib.AsyncExitStack() as open_ones:
        port = node.ports[LISTENER]
        admin = await open_ones.enter_async_context(Admin(f"127.0.0.1:{port}"))
        polite = open_ones.enter_context(contextlib.closing(await connect(port)))
        for turn in range(options.rounds):
            for ending, what in (("answered", "new"), ("closed", "refused")):
                report.note(f"  round {turn + 1}, {what} ...")
                limit = str(LIMIT) if ending == "closed" else None
                key = f"listener.name.{LISTENER.lower()}.max.connections"
                await admin.alter_configs({ConfigResource.broker(1): {key: limit}})
                with contextlib.ExitStack() as occupied:
                    if limit:
                        await _occupy(port, occupied)
                    row = await _flood(node, polite, options.seconds, ending)
                rows.append([f"{turn + 1}: {what}", *row])
                cpu[ending].append(float(row[1] or 0))
    report.table(
        f"Connections that come as fast as the node takes them, {WORKERS} at a time",
        [
            "round",
            "a second",
            "CPU each, µs",
            "small request beside, p50 ms",
            "p99 ms",
            "worst ms",
            "longest turn, ms",
            "busiest turn, CPU ms",
        ],
        rows,
    )
    report.compare(CONNECTION_CPU, median(cpu["answered"]))
    report.compare(REFUSAL_CPU, median(cpu["closed"]))


async def _occupy(port: int, occupied: contextlib.ExitStack) -> None:
    """Open connections until the node refuses one."""
    for _ in range(LIMIT):
        connection = await connect(port)
        if not await ask(connection):
            connection.close()
            return
        occupied.callback(connection.close)
    raise RuntimeError(f"the node has more than {LIMIT} connections")


async def memory(made: Certificates, options: argparse.Namespace, report: Report) -> None:
    """Connections that have had one answer, and are silent then."""
    async with server(made.node) as node:
        with contextlib.ExitStack() as open_ones:
            await _open(node, _FIRST, open_ones)
            await asyncio.sleep(_SETTLE_S)
            before = await node.ask("memory")
            began = await node.ask("cpu")
            await _open(node, options.idle, open_ones)
            opened = await node.ask("cpu")
            await asyncio.sleep(_SETTLE_S)
            used_mib = await node.ask("memory") - before
            await asyncio.sleep(options.seconds)
            idle_s = await node.ask("cpu") - opened
    each_kib = used_mib * 1024 / options.idle
    report.table(
        f"{options.idle} idle connections",
        ["memory, MiB", "each, KiB", "CPU to open, s", "idle CPU, % of one core"],
        [[used_mib, each_kib, opened - began, 100 * idle_s / (options.seconds + _SETTLE_S)]],
    )
    report.compare(CONNECTION_MEMORY, each_kib)


async def _open(node: Server, count: int, open_ones: contextlib.ExitStack) -> None:
    for _ in range(count):
        connection = await connect(node.ports[LISTENER])
        open_ones.callback(connection.close)
        if not await ask(connection):
            raise RuntimeError("the node has closed an idle connection")


async def storm(made: Certificates, options: argparse.Namespace, report: Report) -> None:
    """All clients come back at once."""
    rows: list[list[Cell]] = []
    busiest: list[float] = []
    async with server(made.node) as node:
        port = node.ports[LISTENER]
        with contextlib.closing(await connect(port)) as polite:
            for turn in range(options.rounds):
                await asyncio.sleep(_SETTLE_S)
                await node.ask("turns")
                await node.ask("busy")
                began = time.perf_counter()
                async with _beside(polite) as beside:
                    connections = await asyncio.gather(
                        *(_arrive(port) for _ in range(options.storm))
                    )
                took_s = time.perf_counter() - began
                turns = [await node.ask("turns"), await node.ask("busy")]
                rows.append([str(turn + 1), took_s, *beside.figures(), *turns])
                busiest.append(turns[1])
                for connection in connections:
                    connection.close()
    report.table(
        f"{options.storm} clients come back at once",
        [
            "round",
            "all answered, s",
            "small request beside, p50 ms",
            "p99 ms",
            "worst ms",
            "longest turn, ms",
            "busiest turn, CPU ms",
        ],
        rows,
    )
    report.compare(STORM_TURN, median(busiest))


async def _arrive(port: int) -> socket.socket:
    connection = await connect(port)
    if not await ask(connection):
        raise RuntimeError("the node has closed a connection of the storm")
    return connection


async def run(options: argparse.Namespace) -> None:
    report = Report("connections", as_json=options.json)
    parts = {"floods": floods, "memory": memory, "storm": storm}
    with tempfile.TemporaryDirectory() as folder:
        made = Certificates(Path(folder))
        for part in options.parts.split(","):
            await parts[part](made, options, report)
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="bench connections", description="What connections cost a node."
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--idle", type=int, default=2000, help="idle connections")
    parser.add_argument("--storm", type=int, default=500, help="clients that come at once")
    parser.add_argument("--parts", default="floods,memory,storm")
    parser.add_argument("--json", action="store_true")
    uvloop.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
