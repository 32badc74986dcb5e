"""The cost of fetching: throughput, and the broker's CPU for each answer.

    python -m bench fetch [--seconds 3] [--json]

Raw connections fetch the beginning of a partition again and again. Nothing is decoded, and the
bytes are in the page cache.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from bench.processes import ClientProcess, cpu_of, fresh_cluster, requests_of, wait_whole
from bench.report import FETCH_CPU, Cell, Report
from chaos.process_cluster import ProcessCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Producer

TOPIC = "bench"
MIB = 1024 * 1024
CASES = ((1, 16 * 1024), (1, 128 * 1024), (1, MIB), (4, MIB))
BATCHES_BYTES = 16 * 1024
FILLED_BYTES = 8 * MIB


async def _fill(cluster: ProcessCluster, admin: Admin) -> None:
    """Write some MiB in batches of 16 KiB to a partition with one replica."""
    await admin.create_topics([NewTopic(TOPIC, 1, 1)])
    await wait_whole(admin, [TOPIC])
    value = bytes(1000)
    async with Producer(cluster.bootstrap_servers, acks=1, batch_size=BATCHES_BYTES) as producer:
        for _ in range(FILLED_BYTES // len(value)):
            await producer.send(TOPIC, value)


async def _measure(
    cluster: ProcessCluster, leader_id: int, connections: int, fetch_bytes: int, seconds: float
) -> tuple[list[Cell], float]:
    """A row of the table, and the broker's CPU per answer in µs."""
    job = {"bootstrap": cluster.bootstrap_servers, "topic": TOPIC, "partitions": 1}
    wanted = {"client": "readers", "connections": connections, "fetch_bytes": fetch_bytes}
    client = await ClientProcess.start(job | wanted)
    leader = [cluster.nodes[leader_id]]
    try:
        answers_before, cpu_before = requests_of(leader, "FETCH"), cpu_of(leader)
        seen = await client.ask(do="throughput", seconds=seconds)
        cpu = cpu_of(leader) - cpu_before
        answers = requests_of(leader, "FETCH") - answers_before
    finally:
        await client.close()
    cpu_us = cpu.nodes / answers * 1e6
    row: list[Cell] = [
        connections,
        f"{fetch_bytes // 1024} KiB",
        seen["answers"] / seen["seconds"],
        seen["bytes"] / 1e6 / seen["seconds"],
        seen["p50_ms"],
        seen["p99_ms"],
        cpu_us,
        cpu.nodes * 1e3 / (seen["bytes"] / 1e6),
    ]
    return row, cpu_us


async def run(options: argparse.Namespace) -> None:
    report = Report("fetch", as_json=options.json)
    rows: list[list[Cell]] = []
    async with fresh_cluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        await _fill(cluster, admin)
        (topic,) = await admin.describe_topics([TOPIC])
        leader_id = topic.partitions[0].leader
        assert leader_id is not None
        for connections, fetch_bytes in CASES:
            row, cpu_us = await _measure(
                cluster, leader_id, connections, fetch_bytes, options.seconds
            )
            rows.append(row)
            if (connections, fetch_bytes) == (1, MIB):
                report.compare(FETCH_CPU, cpu_us)
    columns = ["connections", "answer", "answers/s", "MB/s", "p50 ms", "p99 ms"]
    report.table("Fetching", [*columns, "broker CPU µs/answer", "broker CPU ms/MB"], rows)
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench fetch", description="What fetching costs.")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
