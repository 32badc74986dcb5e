"""How long an outage lasts after a kill -9.

    python -m bench failover [--kills 20] [--only leader|controller] [--json]

For the leader of partitions, it lasts from the kill until each partition that it led has
acknowledged, with acks=all, a record that was sent after the kill. For the active controller, it
lasts from the kill until a topic that is requested at once was created. Killed nodes are started
again. Before the next kill every ISR is complete and every controller has caught up.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Sequence

from bench.processes import drawn_leader, fresh_cluster, wait_whole
from bench.pulse import TIMEOUT_S, Pulse, silent
from bench.report import CONTROLLER_OUTAGE, LEADER_OUTAGE, Cell, Report, percentile
from chaos.process_cluster import ProcessCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Producer
from stele.errors import BulkError, ErrorCode

TOPIC = "bench"
PARTITIONS = 6
_POLL_S = 0.05
SEED = 1


# ------------------------------------------------------------------------------- leaders


async def kill_leaders(cluster: ProcessCluster, admin: Admin, kills: int) -> list[float]:
    """Outages in seconds, one for each kill of a broker that leads something."""
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})])
    await wait_whole(admin, [TOPIC])
    rng = random.Random(SEED)
    async with Producer(cluster.bootstrap_servers, linger_ms=0, on_wait=silent) as producer:
        pulse = Pulse(producer, TOPIC, PARTITIONS)
        pulsing = asyncio.create_task(pulse.run())
        try:
            return [await _kill_leader(cluster, admin, pulse, rng) for _ in range(kills)]
        finally:
            pulsing.cancel()
            await asyncio.gather(pulsing, return_exceptions=True)


async def _kill_leader(
    cluster: ProcessCluster, admin: Admin, pulse: Pulse, rng: random.Random
) -> float:
    victim, led = await drawn_leader(admin, TOPIC, rng)
    outage_s = await pulse.outage_s(led, lambda: cluster.kill(victim))
    await cluster.restart(victim)
    await wait_whole(admin, [TOPIC])
    return outage_s


# --------------------------------------------------------------------------- controllers


async def kill_controllers(
    cluster: ProcessCluster, admin: Admin, kills: int
) -> tuple[list[float], list[float]]:
    """Outages in seconds, one for each kill of the active controller; and times of creations
    without a kill."""
    outages, undisturbed = [], []
    for number in range(kills):
        undisturbed.append(await _create(admin, f"calm-{number}"))
        victim = await _whole_quorum(admin)
        cluster.kill(victim)
        outages.append(await _create(admin, f"killed-{number}"))
        await cluster.restart(victim)
    return outages, undisturbed


async def _create(admin: Admin, name: str) -> float:
    """Create a topic. Returns the seconds until it exists."""
    began = time.perf_counter()
    try:
        await admin.create_topics([NewTopic(name, 1, 1)])
    except BulkError as error:
        # The killed controller had committed it, but its answer was lost.
        if error.failed[name].code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    return time.perf_counter() - began


async def _whole_quorum(admin: Admin) -> int:
    """Wait until every voter has the whole log. Returns the leader's id."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            quorum = await admin.describe_quorum()
            ends = [each.log_end_offset for each in quorum.voters]
            if quorum.leader_id is not None and all(
                end is not None and end >= quorum.high_watermark for end in ends
            ):
                return quorum.leader_id
            await asyncio.sleep(_POLL_S)


# -------------------------------------------------------------------------------- report


def _row(name: str, values: list[float]) -> list[Cell]:
    milliseconds = [value * 1e3 for value in values]
    marks = [percentile(milliseconds, percent) for percent in (50, 90, 99)]
    return [name, len(values), min(milliseconds), *marks, max(milliseconds)]


async def run(options: argparse.Namespace) -> None:
    report = Report("failover", as_json=options.json)
    rows: list[list[Cell]] = []
    async with (
        fresh_cluster() as cluster,
        Admin(cluster.bootstrap_servers, on_wait=silent) as admin,
    ):
        if options.only != "controller":
            report.note(f"  killing leaders of partitions, {options.kills} times ...")
            outages = await kill_leaders(cluster, admin, options.kills)
            rows.append(_row("a partition's leader", outages))
            report.compare(LEADER_OUTAGE, percentile(outages, 99))
        if options.only != "leader":
            report.note(f"  killing the active controller, {options.kills} times ...")
            outages, undisturbed = await kill_controllers(cluster, admin, options.kills)
            rows.append(_row("the active controller", outages))
            rows.append(_row("nobody (a topic is created)", undisturbed))
            report.compare(CONTROLLER_OUTAGE, percentile(outages, 99))
    columns = ["killed -9", "times", "least ms", "p50 ms", "p90 ms", "p99 ms", "most ms"]
    report.table("Outages", columns, rows)
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench failover", description="What a kill -9 costs.")
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--only", choices=("leader", "controller"))
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
