"""What a cluster costs that does nothing: CPU, memory; and how long it takes to start.

python -m bench idle [--seconds 20] [--partitions 100] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence

from bench.processes import children, cpu_of, cpu_s, fresh_cluster, pss_mib, rss_mib, wait_whole
from bench.report import IDLE_CPU, IDLE_MEMORY, START, Cell, Report
from chaos.process_cluster import NodeProcess, ProcessCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Producer

SETTLE_S = 5.0


async def _start(cluster: ProcessCluster) -> tuple[float, float]:
    """Start a cluster. Returns the seconds until all brokers serve, and until all have acknowledged
    a record."""
    began = time.perf_counter()
    await cluster.start()
    serving_s = time.perf_counter() - began
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("first", 1, 3, {"min.insync.replicas": "2"})])
        async with Producer(cluster.bootstrap_servers, acks="all", linger_ms=0) as producer:
            await (await producer.send("first", b"record"))
    return serving_s, time.perf_counter() - began


def _row(node: NodeProcess, cpu_percent: float, helper_percent: float) -> list[Cell]:
    helpers = children(node.pid)
    return [
        node.name,
        cpu_percent,
        helper_percent,
        rss_mib(node.pid),
        pss_mib(node.pid),
        len(helpers),
        sum(map(rss_mib, helpers)),
        sum(map(pss_mib, helpers)),
    ]


async def _idle(
    cluster: ProcessCluster, partitions: int, seconds: float, report: Report
) -> list[list[Cell]]:
    """A row for each node, measured after a topic was created and the cluster is quiet."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("idle", partitions, 3)])
        await wait_whole(admin, ["idle"])
    await asyncio.sleep(SETTLE_S)
    report.note(f"  idle for {seconds:.0f} s ...")
    nodes = list(cluster.nodes.values())
    helpers = {node.node_id: children(node.pid) for node in nodes}
    before = {node.node_id: cpu_of([node]) for node in nodes}
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    rows = []
    for node in nodes:
        used = cpu_of([node]) - before[node.node_id]
        percent = 100 / (time.perf_counter() - began)
        assert children(node.pid) == helpers[node.node_id], f"{node.name} has other helpers now"
        rows.append(_row(node, used.nodes * percent, used.helpers * percent))
    return rows


async def run(options: argparse.Namespace) -> None:
    report = Report("idle", as_json=options.json)
    async with fresh_cluster(start=False) as cluster:
        serving_s, first_s = await _start(cluster)
        startup_cpu_s = sum(cpu_s(node.pid) for node in cluster.nodes.values())
        rows = await _idle(cluster, options.partitions, options.seconds, report)
    report.table(
        f"Idle, {options.partitions} partitions, RF 3: % of one core, MiB",
        ["node", "CPU", "helpers' CPU", "RSS", "PSS", "helpers", "their RSS", "their PSS"],
        rows,
    )
    report.table(
        "Start of 3 controllers and 3 brokers, formatting included",
        ["all serve, s", "first acks=all, s", "CPU s of the nodes until then"],
        [[serving_s, first_s, startup_cpu_s]],
    )
    brokers = [row for row in rows if str(row[0]).startswith("broker")]
    report.compare(IDLE_CPU, sum(_number(row[1]) + _number(row[2]) for row in rows))
    report.compare(IDLE_MEMORY, max(_number(row[3]) for row in brokers))
    report.compare(START, first_s)
    report.finish()


def _number(cell: Cell) -> float:
    assert isinstance(cell, int | float)
    return cell


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench idle", description="What an idle cluster costs.")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
