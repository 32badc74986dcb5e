"""What queues cost: share groups with 1, 10 and 100 workers.

python -m bench share [--workers 1,10,100] [--seconds 10] [--records 200000] [--kafka VERSION]
                      [--jars DIRECTORY] [--json]

- deliveries and acknowledgements per second, and the CPU of all brokers for each delivery, where a
  poll takes up to 500 records, and where it takes one;
- the same workers beside one that takes a second for each record;
- the memory of a window of many records in flight, in this process, without a cluster.

All workers run in one process, which shares the cores with the brokers. ``--kafka 4.1.1`` measures
the same workers with Apache Kafka, whose jars are fetched from Maven Central. Polls of one record
need Kafka 4.2.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from bench.jobs import Job, sending
from bench.kafka_cluster import KafkaError, fresh_kafka, jars
from bench.maven import CACHE, MavenError
from bench.peer import Topics
from bench.processes import ClientProcess, children, cpu_s, fresh_cluster
from bench.report import Cell, Report
from broker.share.machine import SharePartition
from broker.share.values import AcknowledgementBatch, AcknowledgeType, Limits, ReadBatch
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ErrorCode
from stele.real import real_connector
from stele.security.client_security import PLAINTEXT
from stele.wire.kafka.messages import incremental_alter_configs

PARTITIONS: Final = 6
RECORD_BYTES: Final = 100
BATCH_BYTES: Final = 16 * 1024
POLLS: Final = (500, 1)
_RECORD_LIMIT_SINCE: Final = (4, 2)
SLOW_MS: Final = 1_000
SLOW_WORKERS: Final = 10
WINDOWS: Final = (2_000, 10_000, 100_000)
"""Records in flight. Group configurations allow 10,000 at most."""
_BATCH_RECORDS: Final = 100
_FILL_S: Final = 1.0
_GROUP: Final = 32  # Kafka's number of this type of resources
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Contender:
    """A cluster that runs."""

    name: str
    bootstrap: str
    broker_pids: Sequence[int]
    polls: Sequence[int] = POLLS
    """Sizes of polls. Brokers before Kafka 4.2 give whole batches, and never one record of them."""

    @property
    def cpu_s(self) -> float:
        helpers = [child for pid in self.broker_pids for child in children(pid)]
        return sum(map(cpu_s, [*self.broker_pids, *helpers]))


# --------------------------------------------------------------------------------- groups


class _Measuring:
    def __init__(self, contender: Contender, options: argparse.Namespace, report: Report) -> None:
        self._contender = contender
        self._seconds: float = options.seconds
        self._records: int = options.records
        self._report = report
        self._groups = 0

    async def fill(self, topic: str) -> None:
        """A topic with ``records`` records at least."""
        settings = {"min.insync.replicas": "2"}
        await Topics(self._contender.bootstrap).create(topic, PARTITIONS, settings)
        job = sending(topic, PARTITIONS, RECORD_BYTES, BATCH_BYTES)
        client = await ClientProcess.start({"bootstrap": self._contender.bootstrap, **job})
        sent = 0.0
        try:
            while sent < self._records:
                sent += (await client.ask(do="throughput", seconds=_FILL_S))["records"]
        finally:
            await client.close()

    async def group(
        self, topic: str, workers: int, poll_records: int, slow_ms: float = 0.0
    ) -> tuple[dict[str, float], float]:
        """What a new group measures that begins with the first record, and the CPU seconds of all
        brokers."""
        self._groups += 1
        group = f"{topic}-{self._groups}"
        await _begin_at_the_first(self._contender.bootstrap, group)
        job: Job = {
            "client": "share",
            "topic": topic,
            "group": group,
            "workers": workers,
            "poll_records": poll_records,
            "slow_ms": slow_ms,
        }
        client = await ClientProcess.start({"bootstrap": self._contender.bootstrap, **job})
        try:
            before = self._contender.cpu_s
            told = await client.ask(do="throughput", seconds=self._seconds)
            return told, self._contender.cpu_s - before
        finally:
            await client.close()

    async def rows(self, topic: str, all_workers: Sequence[int]) -> list[list[Cell]]:
        rows: list[list[Cell]] = []
        for poll_records in self._contender.polls:
            for workers in all_workers:
                self._report.note(f"  {workers} workers, polls of {poll_records} ...")
                told, used_s = await self.group(topic, workers, poll_records)
                deliveries, seconds = told["deliveries"], told["seconds"]
                rows.append(
                    [
                        self._contender.name,
                        poll_records,
                        workers,
                        deliveries / seconds,
                        told["acknowledgements"] / seconds,
                        1e6 * used_s / deliveries if deliveries else None,
                        told["refused"],
                    ]
                )
        return rows

    async def beside_a_slow_one(self, topic: str) -> list[Cell]:
        """Deliveries per second to nine workers, and to them beside a tenth that is slow."""
        self._report.note("  beside a slow worker ...")
        alone, _ = await self.group(topic, SLOW_WORKERS - 1, 1)
        beside, _ = await self.group(topic, SLOW_WORKERS, 1, SLOW_MS)
        quiet = alone["deliveries"] / alone["seconds"]
        others = beside["deliveries of others"] / beside["seconds"]
        return [self._contender.name, quiet, others, others / quiet if quiet else None]


async def _begin_at_the_first(bootstrap: str, group: str) -> None:
    """As any client of the Kafka protocol configures a group."""
    messages = incremental_alter_configs
    config = messages.AlterableConfig("share.auto.offset.reset", 0, "earliest")
    request = messages.IncrementalAlterConfigsRequest(
        [messages.AlterConfigsResource(_GROUP, group, [config])]
    )
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    connection = await KafkaConnection.open(real_connector(PLAINTEXT), host, int(port), "bench")
    try:
        version = messages.API.max_version
        answer = await connection.request(messages.API, version, request, timeout_s=_TIMEOUT_S)
    finally:
        connection.close()
    for each in answer.responses:
        if each.error_code != ErrorCode.NONE:
            raise RuntimeError(f"group {group}: {each.error_message}")


@contextlib.asynccontextmanager
async def _stele() -> AsyncIterator[Contender]:
    async with fresh_cluster() as cluster:
        pids = [cluster.nodes[each].pid for each in cluster.broker_ids]
        yield Contender("Stele", cluster.bootstrap_servers, pids)


@contextlib.asynccontextmanager
async def _kafka(options: argparse.Namespace) -> AsyncIterator[Contender]:
    settings = {
        "share.coordinator.state.topic.replication.factor": 3,
        "share.coordinator.state.topic.min.isr": 2,
    }
    features = ("share.version=1",)  # 4.1 has share groups as a preview
    found = jars(options.kafka, options.jars)
    async with fresh_kafka(found, settings=settings, features=features) as kafka:
        await kafka.start()
        name, pids = f"Kafka {options.kafka}", kafka.broker_pids()
        is_able = tuple(map(int, options.kafka.split(".")[:2])) >= _RECORD_LIMIT_SINCE
        polls = POLLS if is_able else POLLS[:1]
        yield Contender(name, kafka.bootstrap_servers, pids, polls)


# --------------------------------------------------------------------------------- windows


def window_bytes(records: int, *, is_apart: bool) -> float:
    """The memory of a window for each record in flight. ``is_apart``: every second record was
    accepted, so each record has a range of its own; otherwise each batch is one range."""
    limits = Limits(partition_max_record_locks=records)
    read = [
        ReadBatch(first, first + _BATCH_RECORDS - 1) for first in range(0, records, _BATCH_RECORDS)
    ]
    gc.collect()
    tracemalloc.start()
    try:
        partition = SharePartition(0, (), limits)
        for number, batch in enumerate(read):
            partition.acquire(f"member-{number % 100}", batch.first, [batch], _BATCH_RECORDS, 0)
        if is_apart:
            accept = (AcknowledgeType.ACCEPT,)
            for number, batch in enumerate(read):
                decided = [
                    AcknowledgementBatch(offset, offset, accept)
                    for offset in range(batch.first + 1, batch.last + 1, 2)
                ]
                write = partition.acknowledge(f"member-{number % 100}", decided, 0)
                assert write is not None
                partition.written(write.number, 0)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / records
    finally:
        tracemalloc.stop()


def _window_rows() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for records in WINDOWS:
        of_batches = window_bytes(records, is_apart=False)
        apart = window_bytes(records, is_apart=True)
        rows.append([f"{records:,}", of_batches, apart, apart * records / (1 << 20)])
    return rows


async def run(options: argparse.Namespace) -> None:
    report = Report("share", as_json=options.json)
    report.table(
        "Memory of the window of one share partition, batches of 100 records",
        ["in flight", "B each, whole batches", "B each, every second accepted", "MiB, those"],
        _window_rows(),
    )
    contenders = [_stele()] + ([_kafka(options)] if options.kafka else [])
    rows: list[list[Cell]] = []
    slow: list[list[Cell]] = []
    for each in contenders:
        async with each as contender:
            report.note(f"{contender.name} ...")
            measuring = _Measuring(contender, options, report)
            await measuring.fill("queue")
            rows += await measuring.rows("queue", options.workers)
            if 1 in contender.polls:
                slow.append(await measuring.beside_a_slow_one("queue"))
    report.table(
        f"Workers that accept at once, records of {RECORD_BYTES} B, {PARTITIONS} partitions, RF 3",
        [
            "cluster",
            "records, of a poll",
            "workers",
            "deliveries, per s",
            "acknowledged, per s",
            "CPU µs of brokers, each delivery",
            "refused",
        ],
        rows,
    )
    report.table(
        f"One record a poll, beside a worker that takes {SLOW_MS} ms for each",
        ["cluster", "nine workers, per s", "beside a slow one, per s", "ratio"],
        slow,
    )
    report.finish()


def _counts(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench share", description="What queues cost.")
    parser.add_argument("--workers", type=_counts, default=[1, 10, 100], metavar="COUNTS")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--records", type=int, default=200_000, help="in the topic, at least")
    parser.add_argument("--kafka", metavar="VERSION", help="measure this version, too: 4.1.1")
    parser.add_argument("--jars", type=Path, default=CACHE, help="where fetched jars are kept")
    parser.add_argument("--json", action="store_true")
    try:
        uvloop.run(run(parser.parse_args(arguments)))
    except (KafkaError, MavenError) as error:
        sys.exit(f"bench share: {error}")


if __name__ == "__main__":
    main()
