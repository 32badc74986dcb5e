"""What an exactly-once commit of Spark costs: clients, requests and time of each micro-batch.

python -m bench commits [--earlier 1,10,100] [--tasks 2] [--rows 10] [--batches 5] [--json]

The tasks and the driver's step run in this process, one after the other, without Spark. So the
figures are those of Stele's sink alone. ``--earlier`` is the number of micro-batches that the same
query has committed before, all of which are in the log of the ledger. Requests are counted where
the clients send them, Kafka's and gRPC's together.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from bench.processes import fresh_cluster
from bench.report import Cell, Report
from stele import Admin, NewTopic
from stele.cluster.kafka_connection import KafkaConnection
from stele.grpc_channel import RealChannel
from stele.spark.exactly_once_sink import Attempt, ExactlyOnce, Target
from stele.spark.options import SinkOptions
from stele.spark.rows import RowShape
from stele.sync.face import Face

TOPIC = "rows"
SCHEMA = StructType().add("value", StringType())


@dataclass(slots=True)
class Counts:
    """What this process has opened and sent so far."""

    clients: int = 0
    requests: int = 0

    def since(self, clients: int, requests: int) -> Counts:
        return Counts(self.clients - clients, self.requests - requests)


@contextmanager
def counted() -> Iterator[Counts]:
    """Count all clients and requests of this process."""
    counts = Counts()

    def counting(holder: type, name: str, field: str) -> Callable[[], None]:
        before = getattr(holder, name)

        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            setattr(counts, field, getattr(counts, field) + 1)
            return before(self, *arguments, **named)

        setattr(holder, name, call)
        return lambda: setattr(holder, name, before)

    undo = [
        counting(Face, "__init__", "clients"),
        counting(KafkaConnection, "submit_for", "requests"),
        counting(RealChannel, "call", "requests"),
    ]
    try:
        yield counts
    finally:
        for each in undo:
            each()


class Query:
    """A streaming query that writes micro-batches, as Spark's workers and driver do it."""

    def __init__(self, servers: str, tasks: int, ledger: str) -> None:
        options = {"bootstrap.servers": servers, "topic": TOPIC, "ledgerTopic": ledger}
        self._sink = ExactlyOnce(SinkOptions.parse(options), RowShape.of(SCHEMA, TOPIC))
        self._tasks = tasks
        self._name, self._run = uuid.uuid4().hex, uuid.uuid4().hex
        self._attempts = 0
        self.batch = 0

    def write(self, rows: int) -> Callable[[], None]:
        """Run the tasks of the next batch. Returns the driver's step."""
        target = Target(self._name, self._run, self.batch)
        self.batch += 1
        results = []
        for partition in range(self._tasks):
            self._attempts += 1
            frame = [pa.record_batch({"value": [f"row {each}" for each in range(rows)]})]
            attempt = Attempt(partition, self._attempts)
            results.append(self._sink.run_task(target, attempt, iter(frame if rows else [])))
        return lambda: self._sink.commit(results, target)


def measure(query: Query, rows: int, batches: int, counts: Counts) -> list[Cell]:
    """The median time of a batch's tasks and of its commit, and what each of them sends."""
    spent: dict[str, list[float]] = {"tasks": [], "commit": []}
    used = {"tasks": Counts(), "commit": Counts()}

    def timed(name: str, run: Callable[[], Any]) -> Any:
        before, began = (counts.clients, counts.requests), time.perf_counter()
        result = run()
        spent[name].append((time.perf_counter() - began) * 1000)
        made = counts.since(*before)
        used[name].clients += made.clients
        used[name].requests += made.requests
        return result

    for _ in range(batches):
        commit = timed("tasks", lambda: query.write(rows))
        timed("commit", commit)
    cells: list[Cell] = []
    for name in ("tasks", "commit"):
        cells += [
            used[name].clients / batches,
            used[name].requests / batches,
            statistics.median(spent[name]),
        ]
    return cells


def run(servers: str, options: argparse.Namespace, report: Report) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, 2, 3)])
    table: list[list[Cell]] = []
    with counted() as counts:
        query = Query(servers, options.tasks, "ledger")
        for earlier in sorted(int(each) for each in options.earlier.split(",")):
            report.note(f"{earlier} earlier batches")
            while query.batch < earlier:
                query.write(options.rows)()
            for rows in (0, options.rows):
                cells = measure(query, rows, options.batches, counts)
                table.append([earlier, rows * options.tasks, *cells])
    head = ["earlier batches", "rows"]
    for name in ("tasks", "commit"):
        head += [f"{name}: clients", "requests", "ms"]
    report.table(f"A micro-batch of {options.tasks} tasks, exactly once", head, table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench commits")
    parser.add_argument("--earlier", default="1,10,100", help="batches before, with commas")
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=10, help="of a task of a small batch")
    parser.add_argument("--batches", type=int, default=5, help="measured of each kind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = Report("commits", as_json=options.json)
    with asyncio.Runner() as runner:
        apart = fresh_cluster({"transaction.two.phase.commit.enable": "true"})
        servers = runner.run(apart.__aenter__()).bootstrap_servers
        try:
            run(servers, options, report)
        finally:
            runner.run(apart.__aexit__(None, None, None))
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
