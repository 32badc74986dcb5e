"""What clients of ``stele.v1.Log`` cost, beside those that speak to leaders in whole batches.

    python -m bench thin [--seconds 3] [--repeat 3] [--json]

The topic has six partitions on three brokers. Thin clients use one broker for all of them. The
client's process and the brokers share the cores. So the rate depends on the CPU time of all of
them together, which other work on the machine changes less than it changes rates. Rounds of all
clients follow each other, and each figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from typing import Any

from bench.processes import ClientProcess, cpu_of, cpu_s, fresh_cluster, wait_whole
from bench.report import Cell, Report
from chaos.process_cluster import ProcessCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin

PARTITIONS = 6
RECORD_BYTES = 100
BATCH_BYTES = 64 * 1024
MESSAGES_RECORDS = (1, 10, 100, 1000)


Figures = tuple[float, float, float]


async def _measure(cluster: ProcessCluster, job: dict[str, Any], seconds: float) -> Figures:
    """Records per second, and microseconds of CPU for each in the brokers and in the client."""
    client = await ClientProcess.start(job)
    brokers = [cluster.nodes[each] for each in cluster.broker_ids]
    try:
        before, client_before_s = cpu_of(brokers), cpu_s(client.pid)
        seen = await client.ask(do="throughput", seconds=seconds)
        brokers_s = (cpu_of(brokers) - before).nodes
        client_s = cpu_s(client.pid) - client_before_s
    finally:
        await client.close()
    records = seen["records"]
    return records / seen["seconds"], brokers_s / records * 1e6, client_s / records * 1e6


COLUMNS = [
    "client", "records/s", "brokers' CPU µs/record", "client's", "ratio of rates", "ratio of CPU",
]  # fmt: skip


def _rows(names: Sequence[str], rounds: list[list[Figures]]) -> list[list[Cell]]:
    """The medians of the rounds. The ratios are those to the first client: above 1 is better."""
    medians = [
        tuple(statistics.median(part) for part in zip(*each, strict=True))
        for each in zip(*rounds, strict=True)
    ]
    first_rate, *first_cpu = medians[0]
    return [
        [name, rate, *cpu, rate / first_rate, sum(first_cpu) / sum(cpu)]
        for name, (rate, *cpu) in zip(names, medians, strict=True)
    ]


def _writers(common: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The jobs of all that write, by name, without their topics."""
    jobs = {"batches, to leaders": common | {"client": "own"}}
    for is_publisher in (False, True):
        for count in MESSAGES_RECORDS:
            name = f"{count} records/message" + (", publisher" if is_publisher else "")
            more = {"message_records": count, "is_publisher": is_publisher}
            jobs[name] = common | more | {"client": "thin writer"}
    return jobs


async def run(options: argparse.Namespace) -> None:
    report = Report("thin", as_json=options.json)
    async with fresh_cluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        node = cluster.nodes[cluster.broker_ids[0]]
        common = {
            "bootstrap": cluster.bootstrap_servers,
            "grpc": node.settings["grpc.listeners"].rpartition("/")[2],
            "partitions": PARTITIONS,
            "record_bytes": RECORD_BYTES,
            "batch_bytes": BATCH_BYTES,
            "acks": "all",
        }
        writers = _writers(common)
        readers = {"batches, from leaders": "own reader", "Subscribe": "thin reader"}
        written: list[list[Figures]] = []
        read: list[list[Figures]] = []
        for number in range(options.repeat):
            report.note(f"round {number + 1} of {options.repeat}")
            topics = [f"written-{number}-{each}" for each in range(len(writers))]
            configs = {"min.insync.replicas": "2"}
            await admin.create_topics([NewTopic(each, PARTITIONS, 3, configs) for each in topics])
            await wait_whole(admin, topics)
            written.append(
                [
                    await _measure(cluster, job | {"topic": topic}, options.seconds)
                    for job, topic in zip(writers.values(), topics, strict=True)
                ]
            )
            read.append(
                [
                    await _measure(
                        cluster, common | {"client": kind, "topic": topics[0]}, options.seconds
                    )
                    for kind in readers.values()
                ]
            )
            await admin.delete_topics(topics)
        report.table("Writing records of 100 B, acks=all", COLUMNS, _rows(list(writers), written))
        report.table("Reading them", COLUMNS, _rows(list(readers), read))
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench thin", description="What thin clients cost.")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--repeat", type=int, default=3, help="rounds of all measurements")
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
