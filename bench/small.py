"""The cost of small requests: one record each, acks=all, RF 3, at a steady rate.

python -m bench small [--rates 200,1000,5000] [--seconds 5] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from bench.jobs import single_records
from bench.processes import ClientProcess, children, cpu_of, fresh_cluster, switches_of, wait_whole
from bench.report import SMALL_CPU, Cell, Report
from chaos.process_cluster import ProcessCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin

TOPIC = "small"
PARTITIONS = 6
RECORD_BYTES = 100
WARM_UP_S = 2.0


async def _row(cluster: ProcessCluster, per_s: float, seconds: float) -> list[Cell]:
    job = single_records(TOPIC, PARTITIONS, per_s, RECORD_BYTES)
    client = await ClientProcess.start({"bootstrap": cluster.bootstrap_servers, **job})
    brokers = [node for node in cluster.nodes.values() if node.name.startswith("broker")]
    helpers = [child for node in brokers for child in children(node.pid)]
    try:
        await client.ask(do="throughput", seconds=WARM_UP_S)
        before, switched = cpu_of(brokers), switches_of([node.pid for node in brokers])
        helpers_switched = switches_of(helpers)
        told = await client.ask(do="throughput", seconds=seconds)
        used = cpu_of(brokers) - before
        switched = switches_of([node.pid for node in brokers]) - switched
        helpers_switched = switches_of(helpers) - helpers_switched
    finally:
        await client.close()
    records = told["records"]
    return [
        per_s,
        records / told["seconds"],
        told["p50_ms"],
        told["p99_ms"],
        used.nodes / records * 1e6,
        used.helpers / records * 1e6,
        switched / records,
        helpers_switched / records,
    ]


async def run(options: argparse.Namespace) -> None:
    report = Report("small", as_json=options.json)
    rows = []
    async with fresh_cluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics(
            [NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2", "flush.messages": "1"})]
        )
        await wait_whole(admin, [TOPIC])
        for per_s in map(float, options.rates.split(",")):
            report.note(f"  {per_s:.0f} requests/s ...")
            rows.append(await _row(cluster, per_s, options.seconds))
    report.table(
        f"One record ({RECORD_BYTES} B) a request, {PARTITIONS} partitions, RF 3, acks=all, synced",
        [
            "asked/s",
            "acknowledged/s",
            "ack p50 ms",
            "ack p99 ms",
            "broker CPU, µs/request",
            "helper CPU, µs/request",
            "switches of brokers/request",
            "switches of helpers/request",
        ],
        rows,
    )
    at_1000 = [row for row in rows if row[0] == 1000.0]
    for row in at_1000:
        brokers, helpers = row[4], row[5]
        assert isinstance(brokers, float)
        assert isinstance(helpers, float)
        report.compare(SMALL_CPU, brokers + helpers)
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench small", description="The cost of small requests.")
    parser.add_argument("--rates", default="200,1000,5000")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
