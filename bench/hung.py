"""What ``broker.session.timeout.ms`` costs and saves.

    python -m bench hung [--sessions 9000/2000,3000/500] [--stops 5] [--seconds 30] [--json]

A broker that hangs keeps its connections, so nothing tells of it but its silence. Saved: the outage
of the partitions that a broker leads when it is stopped by SIGSTOP. Cost: brokers that are alive
and are fenced all the same, because the machine was too busy for their heartbeats. So the cluster
runs beside producers that send as much as it takes, and beside processes that only compute.
Besides, a leader acknowledges nothing once its session may have ended: a session must outlast the
election of another controller when the active one is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence

from bench.jobs import sending
from bench.processes import ClientProcess, drawn_leader, fresh_cluster, wait_whole
from bench.pulse import Pulse, silent
from bench.report import Cell, Report, percentile
from chaos.process_cluster import ProcessCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Producer

TOPIC = "bench"
PARTITIONS = 6
SEED = 1
CONTROLLER_STOPPED_S = 12.0
_SILENT = "it was silent for"  # in the log of the controller that fences a broker for its silence
_PRODUCERS = 2


async def _outages_s(
    cluster: ProcessCluster, admin: Admin, stops: int
) -> tuple[list[float], list[float]]:
    """One for each stop of a broker that leads something, and of the active controller."""
    rng = random.Random(SEED)
    async with Producer(cluster.bootstrap_servers, linger_ms=0, on_wait=silent) as producer:
        pulse = Pulse(producer, TOPIC, PARTITIONS)
        pulsing = asyncio.create_task(pulse.run())
        try:
            brokers = [await _stop_leader(cluster, admin, pulse, rng) for _ in range(stops)]
            controllers = [await _stop_controller(cluster, admin, pulse) for _ in range(stops)]
            return brokers, controllers
        finally:
            pulsing.cancel()
            await asyncio.gather(pulsing, return_exceptions=True)


async def _stop_leader(
    cluster: ProcessCluster, admin: Admin, pulse: Pulse, rng: random.Random
) -> float:
    victim, led = await drawn_leader(admin, TOPIC, rng)
    try:
        return await pulse.outage_s(led, lambda: cluster.pause(victim))
    finally:
        cluster.resume(victim)
        await wait_whole(admin, [TOPIC])


async def _stop_controller(cluster: ProcessCluster, admin: Admin, pulse: Pulse) -> float:
    victim = (await admin.describe_quorum()).leader_id
    assert victim is not None
    try:
        return await pulse.longest_gap_s(CONTROLLER_STOPPED_S, lambda: cluster.pause(victim))
    finally:
        cluster.resume(victim)
        await wait_whole(admin, [TOPIC])


# ------------------------------------------------------------------------- false alarms


async def _false_alarms(cluster: ProcessCluster, hogs: int, seconds: float) -> int:
    """How often brokers were fenced for silence on a machine that is too busy."""
    before = _fenced_for_silence(cluster)
    async with _producing(cluster) as clients:
        with _hogs(hogs):
            await asyncio.gather(*(each.ask(do="throughput", seconds=seconds) for each in clients))
    return _fenced_for_silence(cluster) - before


def _fenced_for_silence(cluster: ProcessCluster) -> int:
    logs = (cluster.nodes[each].log_file for each in cluster.controller_ids)
    return sum(log.read_text(errors="replace").count(_SILENT) for log in logs)


@contextlib.asynccontextmanager
async def _producing(cluster: ProcessCluster) -> AsyncIterator[list[ClientProcess]]:
    job = sending(TOPIC, PARTITIONS, 1024, 16 * 1024, client="own")
    async with contextlib.AsyncExitStack() as running:
        clients = []
        for _ in range(_PRODUCERS):
            client = await ClientProcess.start({"bootstrap": cluster.bootstrap_servers, **job})
            running.push_async_callback(client.close)
            clients.append(client)
        yield clients


@contextlib.contextmanager
def _hogs(count: int) -> Iterator[None]:
    """Processes that only compute."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


# -------------------------------------------------------------------------------- report


def _sessions(text: str) -> list[tuple[int, int]]:
    """Sessions and their heartbeats, in milliseconds."""
    found = []
    for each in text.split(","):
        session, _, heartbeat = each.partition("/")
        if not (session.isdigit() and heartbeat.isdigit() and int(heartbeat) < int(session)):
            raise argparse.ArgumentTypeError(
                f"{each!r}: it must be a session and a shorter heartbeat, as 3000/500"
            )
        found.append((int(session), int(heartbeat)))
    return found


def _at_least_one(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: it must be at least 1")
    return int(text)


async def _row(
    session_ms: int, heartbeat_ms: int, options: argparse.Namespace, hogs: int
) -> list[Cell]:
    settings = {
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(heartbeat_ms),
    }
    async with (
        fresh_cluster(settings) as cluster,
        Admin(cluster.bootstrap_servers, on_wait=silent) as admin,
    ):
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})])
        await wait_whole(admin, [TOPIC])
        of_brokers, of_controllers = await _outages_s(cluster, admin, options.stops)
        alarms = [
            await _false_alarms(cluster, each, options.seconds) for each in (0, hogs // 2, hogs)
        ]
    return [
        session_ms,
        heartbeat_ms,
        1e3 * percentile(of_brokers, 50),
        1e3 * max(of_brokers),
        1e3 * percentile(of_controllers, 50),
        1e3 * max(of_controllers),
        *alarms,
    ]


async def run(options: argparse.Namespace) -> None:
    report = Report("hung", as_json=options.json)
    rows = []
    for session_ms, heartbeat_ms in options.sessions:
        report.note(f"  a session of {session_ms} ms, a heartbeat every {heartbeat_ms} ms ...")
        rows.append(await _row(session_ms, heartbeat_ms, options, options.hogs))
    report.table(
        f"Nothing acknowledged after a SIGSTOP, {options.stops} times each; brokers fenced for "
        f"silence in {options.seconds:g} s beside full producers and processes that compute",
        [
            "session, ms",
            "heartbeat, ms",
            "leader, p50 ms",
            "leader, most ms",
            "controller, p50 ms",
            "controller, most ms",
            "false alarms, beside none",
            f"false alarms, beside {options.hogs // 2}",
            f"false alarms, beside {options.hogs}",
        ],
        rows,
    )
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench hung", description="What hung brokers cost.")
    parser.add_argument(
        "--sessions", type=_sessions, default="9000/2000,3000/500", help="with heartbeats, in ms"
    )
    parser.add_argument("--stops", type=_at_least_one, default=5, help="of each kind")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each overload")
    parser.add_argument("--hogs", type=int, default=16, help="processes that only compute")
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
