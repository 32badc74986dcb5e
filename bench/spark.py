"""What Spark reads from a topic and writes into one: by this project's source and sink, and by
Spark's own for Kafka, side by side on the same topics of the same cluster.

python -m bench spark [--rows 300000] [--read-rows 1000000] [--sizes 100,1024] [--repeat 3]
                      [--cores 2] [--triggers-s 10] [--large 0] [--json]
                      [--kafka org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 | --no-kafka]

Each figure is the median of the repetitions after one that is not counted. A read sums the lengths
of all values, or passes them to a sink that does nothing, so that every row arrives in the JVM. A
stream reads what is available and ends. Triggers are those of a stream that follows a topic into
which 200 records/s are written; each begins when the one before has ended. ``--large`` writes so
many rows of 100 B, reads them once, and samples the memory of the JVM and of its Python workers.

Spark's package comes from Maven Central, into a directory of its own: what an interrupted run has
left in Ivy's cache would be taken for whole. Without the package only our side is measured, and the
report says so.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import stele.spark
from bench.processes import fresh_cluster, pss_mib
from bench.report import Cell, Report, percentile
from chaos.faults.slow_disks import process_tree
from stele import Admin, NewTopic, Producer

PARTITIONS = 4
TRIGGER_PER_S = 200
LARGE_VALUE_BYTES = 100
_SAMPLE_S = 0.5
KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


@dataclass(frozen=True, slots=True)
class Job:
    """What is measured: its name, who does it, and one run of it."""

    name: str
    by: str
    rows: int
    run: Callable[[], Any]


def median_s(run: Callable[[], Any], repeat: int) -> float:
    """The first run is not counted: it compiles, and starts workers."""
    took = []
    for number in range(repeat + 1):
        begun = time.perf_counter()
        run()
        if number:
            took.append(time.perf_counter() - begun)
    return statistics.median(took)


def session(cores: int, package: str) -> SparkSession:
    """Raises what Spark says if the package cannot be had."""
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
    )
    if package:
        ivy = tempfile.mkdtemp(prefix="stele-bench-ivy-")
        atexit.register(shutil.rmtree, ivy, ignore_errors=True)
        builder = builder.config("spark.jars.packages", package).config("spark.jars.ivy", ivy)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    stele.spark.register(made)
    return made


def create(servers: str, names: list[str], replicas: int = 3) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, replicas) for name in names])


def write(
    spark: SparkSession, sink: str, servers: str, topic: str, rows: int, size: int, **options: str
) -> None:
    """Rows with keys of their own and values of so many bytes."""
    value = f"repeat(cast(id % 10 as string), {size}) as value"
    frame = spark.range(0, rows, 1, PARTITIONS).selectExpr("cast(id as string) key", value)
    writer = frame.write.format(sink).option("kafka.bootstrap.servers", servers)
    writer.options(topic=topic, **options).mode("append").save()


def read(spark: SparkSession, source: str, servers: str, topic: str) -> DataFrame:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).load()


def lengths(spark: SparkSession, source: str, servers: str, topic: str) -> DataFrame:
    """The lengths of all values, in one row."""
    return read(spark, source, servers, topic).selectExpr("sum(octet_length(value))")


@contextmanager
def following(
    spark: SparkSession, source: str, servers: str, topic: str, start: str, **trigger: Any
) -> Iterator[Any]:
    """A streaming query that passes the lengths of all values on to nobody."""
    with tempfile.TemporaryDirectory(prefix="stele-bench-checkpoint-") as checkpoint:
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", servers)
        frame = reader.option("subscribe", topic).option("startingOffsets", start).load()
        writer = frame.selectExpr("octet_length(value) as bytes").writeStream.format("noop")
        query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        try:
            yield query
        finally:
            query.stop()


def jobs(
    spark: SparkSession,
    servers: str,
    topic: str,
    size: int,
    has_kafka: bool,
    *,
    rows: int,
    read_rows: int,
) -> list[Job]:
    """The reads and writes of one size, ours and Spark's in turn. The topic has ``read_rows``."""

    def reads(source: str) -> Callable[[], Any]:
        # A frame of its own for each run: Spark reads nothing again for the same one.
        return lambda: lengths(spark, source, servers, topic).collect()

    def streams(source: str) -> Callable[[], Any]:
        def run() -> None:
            with following(spark, source, servers, topic, "earliest", availableNow=True) as query:
                query.awaitTermination()

        return run

    def writes(sink: str, **chosen: str) -> Callable[[], Any]:
        written = f"{topic}-written"
        return lambda: write(spark, sink, servers, written, rows, size, **chosen)

    found = [Job("read", "stele", read_rows, reads("stele"))]
    if has_kafka:
        found.append(Job("read", "kafka", read_rows, reads("kafka")))
    found.append(Job("stream", "stele", read_rows, streams("stele")))
    if has_kafka:
        found.append(Job("stream", "kafka", read_rows, streams("kafka")))
    found.append(Job("write", "stele, plain", rows, writes("stele", exactlyOnce="false")))
    if has_kafka:
        found.append(Job("write", "kafka", rows, writes("kafka")))
    found.append(Job("write", "stele, exactly once", rows, writes("stele")))
    return found


def measure(
    spark: SparkSession,
    servers: str,
    options: argparse.Namespace,
    has_kafka: bool,
    report: Report,
) -> None:
    sizes = [int(each) for each in options.sizes.split(",")]
    create(servers, [f"rows-{size}{kind}" for size in sizes for kind in ("", "-written")])
    table: list[list[Cell]] = []
    for size in sizes:
        topic = f"rows-{size}"
        report.note(f"filling a topic with {options.read_rows:,} rows of {size} B")
        write(spark, "stele", servers, topic, options.read_rows, size, exactlyOnce="false")
        for job in jobs(
            spark,
            servers,
            topic,
            size,
            has_kafka,
            rows=options.rows,
            read_rows=options.read_rows,
        ):
            report.note(f"{job.name} {size} B by {job.by}")
            took_s = median_s(job.run, options.repeat)
            rate = job.rows / took_s
            name = f"{job.name} {job.rows:,} of {size} B"
            table.append([name, job.by, took_s, rate, rate / options.cores])
    head = ["what", "by", "seconds", "rows/s", "rows/s per core"]
    report.table(f"Rows read and written, {options.cores} cores", head, table)


def triggers(
    spark: SparkSession, servers: str, seconds: float, has_kafka: bool, report: Report
) -> None:
    """How long a trigger takes while records come in: what is written meanwhile waits for it."""
    create(servers, ["triggers"])
    table: list[list[Cell]] = []
    for source in ("stele", "kafka") if has_kafka else ("stele",):
        report.note(f"triggers by {source}")
        at_once = {"processingTime": "0 seconds"}
        with following(spark, source, servers, "triggers", "latest", **at_once) as query:
            with Producer(servers, linger_ms=0) as producer:
                until = time.perf_counter() + seconds
                while time.perf_counter() < until:
                    producer.send("triggers", b"x" * LARGE_VALUE_BYTES)
                    time.sleep(1 / TRIGGER_PER_S)
            query.processAllAvailable()
            told = [each for each in query.recentProgress if each.numInputRows]
        took = sorted(float(each.durationMs["triggerExecution"]) for each in told[1:])
        if took:
            table.append([source, len(took), percentile(took, 50), percentile(took, 99)])
        else:
            report.note(f"{source}: too few triggers in {seconds:g} s; give --triggers-s more")
    head = ["by", "triggers", "p50 ms", "p99 ms"]
    report.table(f"A trigger of a stream, {TRIGGER_PER_S} records/s", head, table)


@dataclass(slots=True)
class Memory:
    """The most memory of the JVM, and of all its Python workers together, in MiB."""

    jvm: float = 0.0
    workers: float = 0.0
    _ends: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def sampled(self) -> Iterator[None]:
        thread = threading.Thread(target=self._sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()

    def _sample(self) -> None:
        own = os.getpid()
        while not self._ends.wait(_SAMPLE_S):
            jvm = workers = 0.0
            for pid in process_tree(own):
                with suppress(OSError, ValueError):  # it has ended
                    name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
                    if name == "java":
                        jvm += pss_mib(pid)
                    elif pid != own and _is_worker(pid):
                        workers += pss_mib(pid)
            self.jvm, self.workers = max(self.jvm, jvm), max(self.workers, workers)


def _is_worker(pid: int) -> bool:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return b"pyspark" in file.read()


def large(spark: SparkSession, servers: str, rows: int, cores: int, report: Report) -> None:
    """Write and read more than fits into the memory of a reader. The topic has one replica, for
    the disk's sake."""
    create(servers, ["large"], replicas=1)
    report.note(f"writing {rows:,} rows")
    begun = time.perf_counter()
    write(spark, "stele", servers, "large", rows, LARGE_VALUE_BYTES, exactlyOnce="false")
    table: list[list[Cell]] = []
    took_s = time.perf_counter() - begun
    table.append(["write", took_s, rows / took_s, None, None])
    report.note(f"reading {rows:,} rows")
    memory = Memory()
    begun = time.perf_counter()
    with memory.sampled():
        ((total,),) = lengths(spark, "stele", servers, "large").collect()
    took_s = time.perf_counter() - begun
    if total != rows * LARGE_VALUE_BYTES:
        raise RuntimeError(f"{total} bytes were read, and {rows * LARGE_VALUE_BYTES} written")
    table.append(["read", took_s, rows / took_s, memory.workers, memory.jvm])
    head = ["what", "seconds", "rows/s", "Python workers, most MiB", "JVM, most MiB"]
    report.table(f"{rows:,} rows of {LARGE_VALUE_BYTES} B, {cores} cores", head, table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench spark")
    parser.add_argument("--rows", type=int, default=300_000, help="written at a time")
    parser.add_argument("--read-rows", type=int, default=1_000_000, help="in each topic")
    parser.add_argument("--sizes", default="100,1024", help="of a value, in bytes")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--triggers-s", type=float, default=10.0, help="0: none")
    parser.add_argument("--large", type=int, default=0, metavar="ROWS")
    parser.add_argument("--kafka", default=KAFKA, metavar="G:A:V")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = Report("spark", as_json=options.json)
    has_kafka = not options.no_kafka
    try:
        spark = session(options.cores, options.kafka if has_kafka else "")
    except Exception as error:
        if not has_kafka:
            raise
        report.note(f"without Spark's own source, {options.kafka} cannot be had: {error}")
        has_kafka, spark = False, session(options.cores, "")
    # Spark finds its sources by the session of the calling thread, so only the cluster is apart.
    with asyncio.Runner() as runner:
        apart = fresh_cluster({"transaction.two.phase.commit.enable": "true"})
        servers = runner.run(apart.__aenter__()).bootstrap_servers
        try:
            if options.rows:
                measure(spark, servers, options, has_kafka, report)
            if options.triggers_s:
                triggers(spark, servers, options.triggers_s, has_kafka, report)
            if options.large:
                large(spark, servers, options.large, options.cores, report)
        finally:
            runner.run(apart.__aexit__(None, None, None))
            spark.stop()
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
