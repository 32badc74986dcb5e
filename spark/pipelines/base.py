"""What all pipelines share: their options, the session, topics as frames, running and progress."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

import stele.spark
from stele import Admin, NewTopic, Producer, security_options
from stele.config import CompressionName
from stele.errors import BulkError, ErrorCode
from stele.security.options import SecurityOptions
from stele.security.properties import as_properties
from stele.spark.option_error import OptionError

_LOG_START: Final = -2  # stands for a time in ``Admin.list_offsets``
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STELE, KAFKA = "stele", "kafka"
_DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.providerClass": _ROCKS,
}


class PipelineError(Exception):
    """The pipeline cannot run. The text says why and what helps."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of every pipeline."""

    bootstrap_servers: str
    prefix: str
    """Before the names of the topics that the pipeline makes."""
    checkpoints: Path
    follow: bool
    """Go on with what comes, instead of ending when everything that is there is processed."""
    trigger: str
    """How often a batch begins when it follows."""
    max_offsets_per_trigger: int
    exactly_once: bool
    partitions: int
    replication_factor: int
    security: SecurityOptions
    """The security of every client, here and in Spark's tasks."""
    format: str = STELE
    """The source and sink of topics: ours, or Spark's own for Kafka."""

    @property
    def spark_options(self) -> dict[str, str]:
        """How the data source reaches the cluster."""
        options = {"bootstrap.servers": self.bootstrap_servers, **as_properties(self.security)}
        return {f"kafka.{name}": value for name, value in options.items()}

    def topic(self, name: str) -> str:
        return f"{self.prefix}{name}"


class _Parser(argparse.ArgumentParser):
    """It also refuses what Spark's own sink does not do."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, left = super().parse_known_args(args, namespace)
        if getattr(options, "format", STELE) == KAFKA:
            if not options.at_least_once:
                self.error(
                    "--format kafka writes without transactions, so rows may be there twice after "
                    "a failure: add --at-least-once, or leave --format out"
                )
            if options.command_config:
                self.error(
                    "--format kafka takes no --command-config, because Kafka's Java client has "
                    "other properties for the same logins: leave --format out"
                )
        return options, left


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """The options that every pipeline has. ``settings`` makes Settings of them."""
    made = _Parser(prog=f"stele spark run {name}", description=description)
    made.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    made.add_argument(
        "--command-config",
        help="a file with properties of the client: security.protocol, ssl.*, sasl.*",
    )
    made.add_argument("--prefix", default="", help="before the names of the pipeline's topics")
    made.add_argument("--checkpoints", default=f"checkpoints/{name}", help="a directory")
    made.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
    made.add_argument("--trigger", default="2 seconds", help="with --follow")
    made.add_argument("--max-offsets-per-trigger", type=int, default=200_000)
    made.add_argument("--at-least-once", action="store_true", help="write without transactions")
    made.add_argument(
        "--format",
        choices=(STELE, KAFKA),
        default=STELE,
        help="kafka: Spark's own source and sink, whose package Spark needs",
    )
    made.add_argument("--partitions", type=int, default=2, help="of the topics that are made")
    made.add_argument("--replication-factor", type=int, default=0, help="0: up to 3")
    return made


def settings(options: argparse.Namespace) -> Settings:
    return Settings(
        options.bootstrap_server,
        options.prefix,
        Path(options.checkpoints),
        options.follow,
        options.trigger,
        options.max_offsets_per_trigger,
        not options.at_least_once,
        options.partitions,
        options.replication_factor,
        security_options(options.command_config),
        options.format,
    )


def session(name: str) -> SparkSession:
    """The session of a job, with the data source. Raises PipelineError without Java.

    spark-submit has the last word about every setting that it gives.
    """
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise PipelineError("Spark needs Java 17: install it, or set JAVA_HOME")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder, given = SparkSession.builder.appName(f"stele-{name}"), SparkConf()
    for key, value in _DEFAULTS.items():
        if not given.contains(key):
            builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    stele.spark.register(made)
    return made


def millis(option: str, text: str) -> int:
    """An ISO 8601 time of an option, in milliseconds since 1970. Without a zone it is UTC."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise PipelineError(f"{option}: {error}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)


def exit_code(run: Callable[[], None]) -> int:
    """Run a pipeline's command. What stops it in words becomes the text and the code 1."""
    try:
        run()
    except (PipelineError, OptionError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


# --------------------------------------------------------------------------------- topics


def producer(settings: Settings, compression: CompressionName) -> Producer:
    """A producer for the input of a pipeline."""
    return Producer(
        settings.bootstrap_servers, compression=compression, linger_ms=20, **settings.security
    )


def ensure_topics(settings: Settings, *names: str, compacted: Sequence[str] = ()) -> None:
    """Create the topics that are not there."""
    with Admin(settings.bootstrap_servers, **settings.security) as admin:
        brokers = len(admin.describe_cluster().brokers)
        replicas = settings.replication_factor or min(3, brokers)
        for name in (*names, *compacted):
            configs = {"min.insync.replicas": "2" if replicas > 2 else "1"}
            if name in compacted:
                configs["cleanup.policy"] = "compact"
            topic = NewTopic(settings.topic(name), settings.partitions, replicas, configs)
            try:
                admin.create_topics([topic])
            except BulkError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise


def stream_of(session: SparkSession, settings: Settings, *topics: str, **options: str) -> DataFrame:
    """The records of topics from their beginning on. ``options``: further ones of the source."""
    return (
        session.readStream.format(settings.format)
        .options(**settings.spark_options)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(settings.topic(each) for each in topics))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(settings.max_offsets_per_trigger))
        .options(**options)
        .load()
    )


def rows_of(records: DataFrame, schema: str) -> DataFrame:
    """The values of records, which are JSON of this schema, as columns."""
    row = fn.from_json(fn.col("value").cast("string"), schema)
    return records.select(row.alias("row")).select("row.*")


def as_records(
    frame: DataFrame, key: Column, fields: Sequence[str | Column], topic: Column | str
) -> DataFrame:
    """Rows as records: the fields are the JSON of the value. ``topic``: a name or a column."""
    return frame.select(
        key.alias("key"),
        fn.to_json(fn.struct(*fields)).alias("value"),
        (fn.lit(topic) if isinstance(topic, str) else topic).alias("topic"),
    )


def batch_of(session: SparkSession, settings: Settings, *topics: str, **options: str) -> DataFrame:
    """The records that topics have now. ``options``: further ones of the source."""
    return (
        session.read.format(settings.format)
        .options(**settings.spark_options)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(settings.topic(each) for each in topics))
        .options(**options)
        .load()
    )


def table_of(session: SparkSession, settings: Settings, topic: str, schema: str) -> DataFrame:
    """A compacted topic as a table: the last value of each key, which is JSON of this schema. Keys
    whose last value is a tombstone are not in it."""
    last = (
        batch_of(session, settings, topic)
        .groupBy("key")
        .agg(fn.max_by(fn.struct("value"), "offset").alias("last"))
        .where("last.value is not null")
    )
    value = fn.from_json(fn.col("last.value").cast("string"), schema)
    return last.select(fn.col("key").cast("string"), value.alias("row")).select("key", "row.*")


def left_out(session: SparkSession, settings: Settings, counted: int, *topics: str) -> int | None:
    """The number of records of these topics that an aggregation has not ``counted``: they came
    later than its watermark allows, or are incomplete. None if a topic's first records are deleted,
    so that the number is not known."""
    names = [settings.topic(each) for each in topics]
    with Admin(settings.bootstrap_servers, **settings.security) as admin:
        described = admin.describe_topics(names)
        starts = admin.list_offsets(
            {
                (topic.name, number): _LOG_START
                for topic in described
                for number in range(len(topic.partitions))
            }
        )
    if any(start.offset > 0 for start in starts.values()):
        return None
    return batch_of(session, settings, *topics).count() - counted


def say_left_out(count: int | None) -> str:
    """The end of a sentence about what was counted."""
    return f"; {count:,} are left out: too late, or incomplete" if count else ""


# -------------------------------------------------------------------------------- queries


def to_topics(frame: DataFrame, settings: Settings, name: str) -> StreamingQuery:
    """Write each batch of rows, which have a topic of their own, as it comes."""
    writer = _started(frame, settings, name).format(settings.format)
    started: StreamingQuery = writer.options(**_sink(settings)).start()
    return started


def changes_to_topics(frame: DataFrame, settings: Settings, name: str) -> StreamingQuery:
    """Write the rows of an aggregation that a batch has changed. A batch that Spark runs again is
    recognized by the id of the query's checkpoint and its number: a new checkpoint begins to count
    anew."""

    def write(changed: DataFrame, batch: int) -> None:
        options = _sink(settings)
        if settings.exactly_once:
            checkpoint = json.loads((settings.checkpoints / name / "metadata").read_text())
            options["txnAppId"] = f"{name}/{checkpoint['id']}"
            options["txnVersion"] = str(batch)
        changed.write.format(settings.format).options(**options).mode("append").save()

    writer = _started(frame, settings, name).outputMode("update")
    started: StreamingQuery = writer.foreachBatch(write).start()
    return started


def to_files(
    frame: DataFrame, settings: Settings, name: str, directory: Path, partition_by: Sequence[str]
) -> StreamingQuery:
    """Write each batch to Parquet files, once: Spark's file sink keeps a list of what counts, so
    files of a batch that failed are not read."""
    writer = _started(frame, settings, name).format("parquet").option("path", str(directory))
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    started: StreamingQuery = writer.start()
    return started


def for_each_batch(
    frame: DataFrame, settings: Settings, name: str, write: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Have a function write each batch. It is called again with the same number for a batch that
    was not finished."""
    started: StreamingQuery = _started(frame, settings, name).foreachBatch(write).start()
    return started


def _sink(settings: Settings) -> dict[str, str]:
    options = {**settings.spark_options, "kafka.compression.type": "lz4"}
    if settings.format == STELE:
        options["exactlyOnce"] = str(settings.exactly_once).lower()
    return options


def _started(frame: DataFrame, settings: Settings, name: str) -> Any:
    writer = frame.writeStream.queryName(f"{settings.prefix}{name}")
    writer = writer.option("checkpointLocation", str(settings.checkpoints / name))
    if settings.follow:
        return writer.trigger(processingTime=settings.trigger)
    return writer.trigger(availableNow=True)


def run(
    settings: Settings,
    stages: Sequence[Callable[[], StreamingQuery]],
    say: Callable[[str], None] = print,
) -> None:
    """Run the queries of a pipeline: at the same time if it follows, otherwise one after the other,
    since each reads what the one before has written. Shows their progress.

    Raises what stops a query.
    """
    if not settings.follow:
        for start in stages:
            query = start()
            _watch([query], say)
        return
    queries = [start() for start in stages]
    try:
        _watch(queries, say)
    except KeyboardInterrupt:
        say("stopped: the next run goes on here")
    finally:
        for query in queries:
            query.stop()


def _watch(queries: Sequence[StreamingQuery], say: Callable[[str], None]) -> None:
    """Until the first of them ends, or all of them if they end by themselves."""
    shown: dict[str, int] = {}
    while True:
        active = [query.isActive for query in queries]
        for query in queries:
            for progress in query.recentProgress:
                batch = progress["batchId"]
                if batch > shown.get(query.name, -1) and progress["numInputRows"]:
                    shown[query.name] = batch
                    say(describe(json.loads(progress.json)))
        failed = [error for query in queries if (error := query.exception()) is not None]
        if failed:
            raise failed[0]
        if not all(active):
            return
        time.sleep(0.2)


def describe(progress: dict[str, Any]) -> str:
    """One line about a batch: rows, rows per second, how far behind, how long it took, how many
    rows came too late."""
    rows = progress["numInputRows"]
    rate = progress.get("processedRowsPerSecond") or 0.0
    took_ms = progress.get("durationMs", {}).get("triggerExecution", 0)
    lags = [_lag(source) for source in progress.get("sources", [])]
    lag = "?" if None in lags else f"{sum(each or 0 for each in lags):,}"
    late = sum(
        operator.get("numRowsDroppedByWatermark", 0)
        for operator in progress.get("stateOperators", [])
    )
    line = (
        f"{progress['name']:<12} batch {progress['batchId']:>4}  {rows:>9,} rows  "
        f"{rate:>9,.0f} rows/s  {took_ms / 1000:>6.1f} s  lag {lag}"
    )
    return f"{line}  late {late:,}" if late else line


def _lag(source: dict[str, Any]) -> int | None:
    """How many offsets the source's topics have beyond the batch. None if it is not known: Spark
    does not ask a source for its ends when it runs a batch again, and files have no offsets."""
    if not source.get("latestOffset"):
        return None
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return sum(max(offset - end.get(name, offset), 0) for name, offset in latest.items())


def _offsets(value: Any) -> dict[tuple[str, str], int]:
    parsed = json.loads(value) if isinstance(value, str) else value
    return dict(_pairs(parsed or {}))


def _pairs(parsed: dict[str, Any]) -> Iterator[tuple[tuple[str, str], int]]:
    """The pairs of our offsets, or of the offsets of Spark's own source for Kafka."""
    for topic, entry in _by_topic(parsed).items():
        for partition, offset in entry.items():
            yield (topic, partition), offset


def _by_topic(parsed: dict[str, Any]) -> dict[str, dict[str, int]]:
    ours = parsed.get("topics", {})
    if all(isinstance(entry, dict) for entry in ours.values()) and (ours or not parsed):
        return {topic: entry["offsets"] for topic, entry in ours.items()}
    return {topic: entry for topic, entry in parsed.items() if isinstance(entry, dict)}


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table. Numbers are on the right."""
    texts = [[_text(each) for each in row] for row in rows]
    widths = [
        max(len(column), *(len(row[n]) for row in texts), 0) if texts else len(column)
        for n, column in enumerate(head)
    ]
    is_number = [bool(rows) and not isinstance(rows[0][n], str) for n in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        pairs = zip(cells, widths, is_number, strict=True)
        return "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in pairs).rstrip()

    print(f"\n{title}\n{line(list(head))}\n{'  '.join('-' * width for width in widths)}")
    for row in texts:
        print(line(row))


def _text(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else f"{value:,.2f}"


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float]) -> str:
    """A picture of a series: one bar for each value, from the lowest to the highest of them."""
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in values)
