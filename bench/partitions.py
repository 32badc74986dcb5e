"""What idle partitions cost a busy one: the time to acknowledgement beside 10, 100, 1,000 of them.

python -m bench partitions [--idle 10,100,1000] [--records 400] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence

from bench.processes import cpu_of, fresh_cluster, wait_whole
from bench.report import Cell, Report
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Producer

RECORDS_PER_S = 200
SETTLE_S = 3.0


async def _row(idle: int, records: int) -> list[Cell]:
    async with fresh_cluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        topics = [NewTopic("idle", idle, 3), NewTopic("busy", 1, 3, {"min.insync.replicas": "2"})]
        await admin.create_topics(topics)
        await wait_whole(admin, ["idle", "busy"])
        await asyncio.sleep(SETTLE_S)
        brokers = [node for node in cluster.nodes.values() if node.name.startswith("broker")]
        before = cpu_of(brokers).nodes
        took_ms = []
        async with Producer(cluster.bootstrap_servers, acks="all", linger_ms=0) as producer:
            for _ in range(records):
                began = time.perf_counter()
                await (await producer.send("busy", b"record"))
                took_s = time.perf_counter() - began
                took_ms.append(1000 * took_s)
                await asyncio.sleep(max(0.0, 1 / RECORDS_PER_S - took_s))
        used = cpu_of(brokers).nodes - before
        worst = statistics.quantiles(took_ms, n=100)[98]
        return [idle, statistics.median(took_ms), worst, 1000 * used / records]


async def run(options: argparse.Namespace) -> None:
    report = Report("partitions", as_json=options.json)
    rows = []
    for idle in map(int, options.idle.split(",")):
        report.note(f"  beside {idle} idle partitions ...")
        rows.append(await _row(idle, options.records))
    report.table(
        f"acks=all of single records, {RECORDS_PER_S}/s at most, RF 3, beside idle partitions",
        ["idle partitions", "ack p50 ms", "ack p99 ms", "CPU ms of all brokers per record"],
        rows,
    )
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench partitions", description="The cost of idle ones.")
    parser.add_argument("--idle", default="10,100,1000")
    parser.add_argument("--records", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
