"""What transactions cost.

python -m bench transactions [--seconds 10] [--json]

- a transaction of 1, 10 and 100 partitions, one record in each, one transaction at a time;
- throughput of transactions of 100 ms, and of no transactions;
- reading with read_committed and with read_uncommitted what both have written.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Literal

import uvloop

from bench.processes import cpu_of, fresh_cluster, wait_whole
from bench.report import Cell, Report, percentile
from chaos.process_cluster import ProcessCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Consumer, Producer
from stele.ids import TopicPartition

PARTITIONS = 100
LOAD_PARTITIONS = 6
RECORD_BYTES = 1024
TRANSACTION_S = 0.1
_RECORDS_AT_ONCE = 100


async def _transactions(
    cluster: ProcessCluster, partitions: int, seconds: float
) -> tuple[list[Cell], int]:
    """One record for each partition, and the commit, again and again."""
    brokers = [cluster.nodes[each] for each in cluster.broker_ids]
    took: list[float] = []
    async with Producer(
        cluster.bootstrap_servers, transactional_id=f"bench-{partitions}", linger_ms=0
    ) as producer:
        await producer.init_transactions()
        await _one(producer, partitions)
        before = cpu_of(brokers)
        deadline = time.perf_counter() + seconds
        while (began := time.perf_counter()) < deadline:
            await _one(producer, partitions)
            took.append(time.perf_counter() - began)
        used = cpu_of(brokers) - before
    count = len(took)
    row: list[Cell] = [
        f"{partitions} partitions",
        count / seconds,
        1000 * percentile(took, 50),
        1000 * percentile(took, 99),
        1000 * used.nodes / count,
    ]
    return row, count


async def _one(producer: Producer, partitions: int) -> None:
    async with producer.transaction():
        for number in range(partitions):
            await producer.send("wide", bytes(100), partition=number)


async def _throughput(
    cluster: ProcessCluster, topic: str, seconds: float, *, transactional: bool
) -> float:
    """MiB per second, acknowledged, in transactions of 100 ms or in none."""
    async with Producer(
        cluster.bootstrap_servers, transactional_id=f"bench-{topic}" if transactional else None
    ) as producer:
        if transactional:
            await producer.init_transactions()
        sent = 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            if transactional:
                async with producer.transaction():
                    sent += await _some(producer, topic)
            else:
                sent += await _some(producer, topic)
        await producer.flush()
        took_s = time.perf_counter() - began
    return sent * RECORD_BYTES / took_s / (1 << 20)


async def _some(producer: Producer, topic: str) -> int:
    """Send for as long as one transaction takes."""
    value, sent = bytes(RECORD_BYTES), 0
    until = time.perf_counter() + TRANSACTION_S
    while time.perf_counter() < until:
        for number in range(_RECORDS_AT_ONCE):
            await producer.send(topic, value, partition=number % LOAD_PARTITIONS)
        sent += _RECORDS_AT_ONCE
    return sent


async def _read(
    cluster: ProcessCluster,
    topic: str,
    isolation_level: Literal["read_committed", "read_uncommitted"],
) -> float:
    """MiB per second, from the beginning to the end."""
    partitions = [TopicPartition(topic, number) for number in range(LOAD_PARTITIONS)]
    async with Consumer(
        cluster.bootstrap_servers, isolation_level=isolation_level, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        count = 0
        began = time.perf_counter()
        while True:
            count += len(await consumer.poll(timeout_ms=200))
            positions = [await consumer.position(*each) for each in partitions]
            if all(at >= ends[each] for at, each in zip(positions, partitions, strict=True)):
                break
        took_s = time.perf_counter() - began
    return count * RECORD_BYTES / took_s / (1 << 20)


async def run(options: argparse.Namespace) -> None:
    report = Report("transactions", as_json=options.json)
    async with fresh_cluster() as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            names = ["wide", "plain", "transactional"]
            await admin.create_topics(
                [
                    NewTopic("wide", PARTITIONS, 3),
                    NewTopic("plain", LOAD_PARTITIONS, 3),
                    NewTopic("transactional", LOAD_PARTITIONS, 3),
                ]
            )
            await wait_whole(admin, names)
        report.note("  transactions of several sizes ...")
        rows = [(await _transactions(cluster, n, options.seconds))[0] for n in (1, 10, PARTITIONS)]
        report.table(
            "Transactions, RF 3, synced, one at a time",
            ["size", "per s", "p50 ms", "p99 ms", "CPU ms of all brokers each"],
            rows,
        )
        report.note("  throughput ...")
        plain = await _throughput(cluster, "plain", options.seconds, transactional=False)
        inside = await _throughput(cluster, "transactional", options.seconds, transactional=True)
        report.table(
            "One producer, records of 1 KiB, 6 partitions",
            ["how", "MiB per s", "ratio"],
            [["no transactions", plain, 1.0], ["transactions of 100 ms", inside, inside / plain]],
        )
        report.note("  reading ...")
        uncommitted = await _read(cluster, "transactional", "read_uncommitted")
        committed = await _read(cluster, "transactional", "read_committed")
        report.table(
            "One consumer of what the transactions have written",
            ["how", "MiB per s", "ratio"],
            [
                ["read_uncommitted", uncommitted, 1.0],
                ["read_committed", committed, committed / uncommitted],
            ],
        )
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="bench transactions", description="What transactions cost."
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    uvloop.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
