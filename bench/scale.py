"""How costs grow with partitions, with connections, and with producers.

    python -m bench scale [--partitions 100,1000,10000] [--connections 10,100,1000]
                          [--producers 1,10,50,200] [--seconds 5] [--picture FILE] [--json]

A list may be empty: ``--producers=``. Partitions have 3 replicas on 3 brokers, and a fresh cluster
for each number of them. Then a broker that leads a third of them is killed and started again.
Connections are consumers at the end of a topic where nothing comes; each answer takes 5 s.
Beside all of them, one client sends 200 records/s, one in each request, with acks=all. Producers
are ``stele.aio.Producer``, all in one process, which becomes the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.jobs import measured, reading, sending, single_records
from bench.processes import (
    ClientProcess,
    all_pids,
    cpu_percent,
    drawn_leader,
    fresh_cluster,
    metrics_of,
    pss_mib,
    wait_whole,
)
from bench.pulse import Pulse, silent
from bench.report import Cell, Report
from chaos.process_cluster import ProcessCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Producer

MANY: Final = "many"
BESIDE: Final = "beside"
PULSES: Final = "pulses"
BESIDE_PER_S: Final = 200
FEW: Final = 6  # partitions of a topic that is not what grows
BATCH_BYTES: Final = 16 * 1024
_MIN_ISR: Final = {"min.insync.replicas": "2"}
_MAX_WAIT_MS: Final = 5000
_SETTLE_S: Final = 3.0
_POLL_S: Final = 0.2
_OFFLINE: Final = "stele_offline_replica_count"
_WHOLE_S: Final = 300.0
_SEED: Final = 1
_AT_ONCE: Final = 5000  # partitions in one request; a controller refuses far more


@dataclass(frozen=True, slots=True)
class Curves:
    """What was measured for each number of something. The first column is that number."""

    title: str
    columns: list[str]
    rows: list[list[float]]


async def _beside(cluster: ProcessCluster, seconds: float) -> dict[str, float]:
    """The times to acknowledgement of the client beside."""
    job = single_records(BESIDE, 1, BESIDE_PER_S)
    return await measured(cluster.bootstrap_servers, job, seconds, warm_s=1.0)


# --------------------------------------------------------------------------- partitions


async def _of_partitions(count: int, seconds: float) -> list[float]:
    async with (
        fresh_cluster() as cluster,
        Admin(cluster.bootstrap_servers, on_wait=silent) as admin,
    ):
        began = time.perf_counter()
        await admin.create_topics([NewTopic(MANY, min(count, _AT_ONCE), 3, _MIN_ISR)])
        for some in range(2 * _AT_ONCE, count + _AT_ONCE, _AT_ONCE):
            await admin.create_partitions({MANY: min(some, count)})
        await wait_whole(admin, [MANY], timeout_s=_WHOLE_S)
        await _wait_made(cluster)
        created_s = time.perf_counter() - began
        await admin.create_topics([NewTopic(BESIDE, 1, 3, _MIN_ISR)])
        await admin.create_topics([NewTopic(PULSES, FEW, 3, _MIN_ISR)])
        await wait_whole(admin, [BESIDE, PULSES])
        await asyncio.sleep(_SETTLE_S)
        pids = all_pids(cluster)
        idle_percent = await cpu_percent(pids, seconds)
        memory_mib = sum(map(pss_mib, pids))
        beside = await _beside(cluster, seconds)
        job = sending(MANY, count, 1024, BATCH_BYTES)
        sent = await measured(cluster.bootstrap_servers, job, seconds)
        outage_s, back_s = await _killed(cluster, admin)
    return [
        count,
        created_s,
        idle_percent,
        memory_mib,
        beside["p50_ms"],
        beside["p99_ms"],
        sent["bytes"] / sent["seconds"] / 1e6,
        outage_s,
        back_s,
    ]


async def _wait_made(cluster: ProcessCluster) -> None:
    """Wait until no broker has replicas whose logs are still to be made."""
    brokers = [node for node in cluster.nodes.values() if node.name.startswith("broker")]
    async with asyncio.timeout(_WHOLE_S):
        while any(metrics_of(node)[_OFFLINE] for node in brokers):  # noqa: ASYNC110 - elsewhere
            await asyncio.sleep(_POLL_S)


async def _killed(cluster: ProcessCluster, admin: Admin) -> tuple[float, float]:
    """The outage after a broker that leads a third is killed, and the time from its next start
    until every ISR is complete, in seconds."""
    victim, led = await drawn_leader(admin, PULSES, random.Random(_SEED))
    async with Producer(cluster.bootstrap_servers, linger_ms=0, on_wait=silent) as producer:
        pulse = Pulse(producer, PULSES, FEW)
        pulsing = asyncio.create_task(pulse.run())
        try:
            outage_s = await pulse.outage_s(led, lambda: cluster.kill(victim))
        finally:
            pulsing.cancel()
            await asyncio.gather(pulsing, return_exceptions=True)
    began = time.perf_counter()
    await cluster.restart(victim, timeout_s=_WHOLE_S)
    await wait_whole(admin, [MANY, PULSES], timeout_s=_WHOLE_S)
    return outage_s, time.perf_counter() - began


# --------------------------------------------------------------- connections, producers


async def _of_connections(cluster: ProcessCluster, count: int, seconds: float) -> list[float]:
    job = reading(MANY, FEW, count, max_wait_ms=_MAX_WAIT_MS)
    client = await ClientProcess.start({"bootstrap": cluster.bootstrap_servers, **job})
    try:
        waiting = asyncio.create_task(client.ask(do="throughput", seconds=2 * seconds + _SETTLE_S))
        pids = all_pids(cluster)
        percent = await cpu_percent(pids, seconds)
        memory_mib = sum(map(pss_mib, pids))
        beside = await _beside(cluster, seconds)
        await waiting
    finally:
        await client.close()
    return [count, percent, memory_mib, beside["p50_ms"], beside["p99_ms"]]


async def _of_producers(cluster: ProcessCluster, count: int, seconds: float) -> list[float]:
    job = sending(MANY, FEW, 1024, BATCH_BYTES, client="many") | {"producers": count}
    told = await measured(cluster.bootstrap_servers, job, seconds)
    return [count, told["bytes"] / told["seconds"] / 1e6, told["p50_ms"], told["p99_ms"]]


# ------------------------------------------------------------------------------- report


async def run(options: argparse.Namespace) -> None:
    report = Report("scale", as_json=options.json)
    found: list[Curves] = []
    rows = []
    for count in options.partitions:
        report.note(f"  {count} partitions ...")
        rows.append(await _of_partitions(count, options.seconds))
    if rows:
        beside = f"{BESIDE_PER_S}/s beside,"
        columns = ["partitions", "create, s", "idle CPU, % of one core", "PSS of all, MiB"]
        columns += [f"{beside} p50 ms", f"{beside} p99 ms", "sending to all, MB/s"]
        columns += ["leader killed, outage s", "started, whole again s"]
        found.append(Curves("By the number of partitions", columns, rows))
    async with fresh_cluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        topics = [NewTopic(MANY, FEW, 3, _MIN_ISR), NewTopic(BESIDE, 1, 3, _MIN_ISR)]
        await admin.create_topics(topics)
        await wait_whole(admin, [MANY, BESIDE])
        rows = []
        for count in options.connections:
            report.note(f"  {count} connections ...")
            rows.append(await _of_connections(cluster, count, options.seconds))
        if rows:
            columns = ["connections", "CPU, % of one core", "PSS of all, MiB"]
            columns += ["200/s beside, p50 ms", "200/s beside, p99 ms"]
            found.append(Curves("By the number of waiting consumers", columns, rows))
        rows = []
        for count in options.producers:
            report.note(f"  {count} producers ...")
            rows.append(await _of_producers(cluster, count, options.seconds))
        if rows:
            columns = ["producers", "sent, MB/s", "ack p50 ms", "ack p99 ms"]
            found.append(Curves("By the number of producers", columns, rows))
    for curves in found:
        rows_of_cells: list[list[Cell]] = [list(row) for row in curves.rows]
        report.table(curves.title, curves.columns, rows_of_cells)
    if options.picture is not None:
        draw(found, options.picture)
        report.note(f"drawn: {options.picture}")
    report.finish()


def draw(found: Sequence[Curves], path: Path) -> None:
    """A picture of all curves, one for each column, with logarithmic numbers below."""
    from matplotlib.figure import Figure

    widest = max(len(curves.columns) for curves in found) - 1
    across = min(widest, 4)
    down = sum(-(-(len(curves.columns) - 1) // across) for curves in found)
    figure = Figure(figsize=(3.2 * across, 2.6 * down), layout="constrained")
    place = 0
    for curves in found:
        for number, column in enumerate(curves.columns[1:], 1):
            axes = figure.add_subplot(down, across, place + number)
            counts = [row[0] for row in curves.rows]
            axes.plot(counts, [row[number] for row in curves.rows], "o-")
            axes.set_xscale("log")
            axes.set_xticks(counts, [f"{count:,.0f}" for count in counts])
            axes.minorticks_off()
            axes.set_ylim(bottom=0)
            axes.set_title(column, fontsize=9)
            axes.set_xlabel(curves.columns[0], fontsize=8)
            axes.tick_params(labelsize=8)
        place += -(-(len(curves.columns) - 1) // across) * across
    figure.savefig(path)


def _counts(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench scale", description="How costs grow.")
    for name, default in (
        ("partitions", [100, 1000, 10_000]),
        ("connections", [10, 100, 1000]),
        ("producers", [1, 10, 50, 200]),
    ):
        parser.add_argument(f"--{name}", type=_counts, default=default, metavar="COUNTS")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument(
        "--picture", type=Path, help="a file ending in .svg or .png; needs matplotlib"
    )
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
