"""What clients of ``stele.v1.Log`` cost, beside those that speak to leaders in whole batches.

    python -m bench thin [--seconds 3] [--json]

The topic has six partitions on three brokers. Thin clients use one broker for all of them. The
client's process and the brokers share the cores.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

from bench.processes import ClientProcess, cpu_of, fresh_cluster, wait_whole
from bench.report import Cell, Report
from chaos.process_cluster import ProcessCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin

PARTITIONS = 6
RECORD_BYTES = 100
BATCH_BYTES = 64 * 1024
MESSAGES_RECORDS = (1, 10, 100, 1000)


async def _measure(
    cluster: ProcessCluster, job: dict[str, Any], name: str, seconds: float
) -> list[Cell]:
    """A row of the table, without the ratio."""
    client = await ClientProcess.start(job)
    brokers = [cluster.nodes[each] for each in cluster.broker_ids]
    try:
        before = cpu_of(brokers)
        seen = await client.ask(do="throughput", seconds=seconds)
        cpu = cpu_of(brokers) - before
    finally:
        await client.close()
    return [name, seen["records"] / seen["seconds"], cpu.nodes / seen["records"] * 1e6]


def _with_ratios(rows: list[list[Cell]]) -> list[list[Cell]]:
    """Each rate also as a part of the first row's."""
    first = rows[0][1]
    assert isinstance(first, float)
    return [[*row, row[1] / first if isinstance(row[1], float) else None] for row in rows]


async def run(options: argparse.Namespace) -> None:
    report = Report("thin", as_json=options.json)
    async with fresh_cluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        configs = {"min.insync.replicas": "2"}
        names = [f"written-{number}" for number in range(2 * len(MESSAGES_RECORDS) + 1)]
        await admin.create_topics([NewTopic(name, PARTITIONS, 3, configs) for name in names])
        await wait_whole(admin, names)
        topics = iter(names)
        node = cluster.nodes[cluster.broker_ids[0]]
        common = {
            "bootstrap": cluster.bootstrap_servers,
            "grpc": node.settings["grpc.listeners"].rpartition("/")[2],
            "partitions": PARTITIONS,
            "record_bytes": RECORD_BYTES,
            "batch_bytes": BATCH_BYTES,
            "acks": "all",
        }
        own = common | {"client": "own", "topic": next(topics)}
        rows = [await _measure(cluster, own, "batches, to leaders", options.seconds)]
        for is_publisher in (False, True):
            for count in MESSAGES_RECORDS:
                thin = common | {
                    "client": "thin writer",
                    "topic": next(topics),
                    "message_records": count,
                    "is_publisher": is_publisher,
                }
                name = f"{count} records/message" + (", publisher" if is_publisher else "")
                rows.append(await _measure(cluster, thin, name, options.seconds))
        columns = ["client", "records/s", "brokers' CPU µs/record", "ratio"]
        report.table("Writing records of 100 B, acks=all", columns, _with_ratios(rows))
        rows = []
        for kind, name in (("own reader", "batches, from leaders"), ("thin reader", "Subscribe")):
            reader = common | {"client": kind, "topic": names[0]}
            rows.append(await _measure(cluster, reader, name, options.seconds))
        report.table("Reading them", columns, _with_ratios(rows))
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench thin", description="What thin clients cost.")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
