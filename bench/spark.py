"""What Spark reads from a topic and writes into one: by this project's source and sink, and by
Spark's own for Kafka, side by side on the same topics of the same cluster.

python -m bench spark [--rows 300000] [--sizes 100,1024] [--repeat 3] [--cores 2] [--json]
                      [--kafka org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 | --no-kafka]

Each figure is the median of the repetitions after one that is not counted. A read sums the lengths
of all values, so that every row arrives in the JVM. Spark's package comes from Maven Central, into
a directory of its own: what an interrupted run has left in Ivy's cache would be taken for whole.
Without the package only our side is measured, and the report says so.
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
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import stele.spark
from bench.processes import fresh_cluster
from bench.report import Cell, Report
from stele import Admin, NewTopic, Producer

PARTITIONS = 4
KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


@dataclass(frozen=True, slots=True)
class Job:
    """What is measured: its name, who does it, and one run of it."""

    name: str
    by: str
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


def create(servers: str, names: list[str]) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in names])


def fill(servers: str, topic: str, rows: int, size: int) -> None:
    value = os.urandom(size // 2).hex().encode().ljust(size, b"x")
    with Producer(servers, linger_ms=20) as producer:
        for number in range(rows):
            producer.send(topic, value, b"%d" % number)


def read(spark: SparkSession, source: str, servers: str, topic: str) -> DataFrame:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).load()


def jobs(
    spark: SparkSession, servers: str, topic: str, rows: int, size: int, has_kafka: bool
) -> list[Job]:
    """The reads and writes of one size, ours and Spark's in turn."""

    def reads(source: str) -> Callable[[], Any]:
        frame = read(spark, source, servers, topic).selectExpr("sum(octet_length(value))")
        return frame.collect

    def writes(sink: str, **options: str) -> Callable[[], Any]:
        def run() -> None:
            value = f"repeat(cast(id % 10 as string), {size}) as value"
            frame = spark.range(0, rows, 1, PARTITIONS).selectExpr("cast(id as string) key", value)
            writer = frame.write.format(sink).option("kafka.bootstrap.servers", servers)
            writer.options(topic=f"{topic}-written", **options).mode("append").save()

        return run

    found = [Job("read", "stele", reads("stele"))]
    if has_kafka:
        found.append(Job("read", "kafka", reads("kafka")))
    found.append(Job("write", "stele, plain", writes("stele", exactlyOnce="false")))
    if has_kafka:
        found.append(Job("write", "kafka", writes("kafka")))
    found.append(Job("write", "stele, exactly once", writes("stele")))
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
        fill(servers, topic, options.rows, size)
        for job in jobs(spark, servers, topic, options.rows, size, has_kafka):
            report.note(f"{job.name} {size} B by {job.by}")
            took_s = median_s(job.run, options.repeat)
            rate = options.rows / took_s
            table.append([f"{job.name} {size} B", job.by, took_s, rate, rate / options.cores])
    head = ["what", "by", "seconds", "rows/s", "rows/s per core"]
    report.table(f"{options.rows:,} rows, {options.cores} cores", head, table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench spark")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--sizes", default="100,1024", help="of a value, in bytes")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
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
            measure(spark, servers, options, has_kafka, report)
        finally:
            runner.run(apart.__aexit__(None, None, None))
            spark.stop()
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
