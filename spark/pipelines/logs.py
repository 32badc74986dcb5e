"""Log lines of many formats, as one schema.

    logs ──► parse ──► logs-parsed ──► rates ──► log-rates (a table), log-alerts
      │        └─────► logs-dead
      └────► archive ──► Parquet, by day and service

The key of a record is the name of the service, its value a line. Every line is either in
``logs-parsed`` or in ``logs-dead``, there with the reason and the line itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from spark.pipelines import base
from spark.pipelines.log_formats import SCHEMA, is_error, parsed, template

LOGS, PARSED, DEAD, ALERTS, RATES = "logs", "logs-parsed", "logs-dead", "log-alerts", "log-rates"
TOPICS = (LOGS, PARSED, DEAD, ALERTS)
RATES_ROW = "service STRING, minute TIMESTAMP, lines BIGINT, errors BIGINT"


def lines_of(session: SparkSession, settings: base.Settings) -> DataFrame:
    records = base.stream_of(session, settings, LOGS)
    return records.select(
        fn.concat_ws("-", "partition", "offset").alias("id"),
        fn.col("key").cast("string").alias("service"),
        fn.col("value").cast("string").alias("line"),
    )


def parse(session: SparkSession, settings: base.Settings) -> DataFrame:
    rows = parsed(lines_of(session, settings))
    is_good = fn.col("reason").isNull()
    good = fn.to_json(fn.struct("time", "service", "level", "component", "message"))
    bad = fn.to_json(fn.struct("service", "reason", "line"))
    topic = fn.when(is_good, settings.topic(PARSED)).otherwise(settings.topic(DEAD))
    return rows.select(
        fn.col("service").alias("key"),
        fn.when(is_good, good).otherwise(bad).alias("value"),
        topic.alias("topic"),
    )


def archive(session: SparkSession, settings: base.Settings, directory: Path) -> StreamingQuery:
    """The raw lines, in files by day and service. Spark's file sink writes each batch once."""
    rows = parsed(lines_of(session, settings))
    day = fn.coalesce(fn.to_date("time").cast("string"), fn.lit("unknown"))
    frame = rows.select("id", "service", "line", day.alias("day"))
    return base.to_files(frame, settings, "archive", directory, ["day", "service"])


def rates(session: SparkSession, settings: base.Settings, late: str, limit: float) -> DataFrame:
    """Lines and errors by service and minute, and an alert for a minute with too many errors."""
    records = base.stream_of(session, settings, PARSED)
    counted = (
        base.rows_of(records, SCHEMA)
        .withWatermark("time", late)
        .groupBy("service", fn.window("time", "1 minute").alias("minute"))
        .agg(
            fn.count("*").alias("lines"),
            fn.sum(is_error(fn.col("level")).cast("int")).alias("errors"),
        )
        .withColumn("minute", fn.col("minute.start"))
    )
    is_alarming = (fn.col("errors") >= 5) & (fn.col("errors") > limit * fn.col("lines"))
    topics = fn.array_compact(
        fn.array(
            fn.lit(settings.topic(RATES)), fn.when(is_alarming, fn.lit(settings.topic(ALERTS)))
        )
    )
    key = fn.concat_ws("|", "service", fn.col("minute").cast("string"))
    return base.as_records(
        counted, key, ("service", "minute", "lines", "errors"), fn.explode(topics)
    )


# --------------------------------------------------------------------------------- result


def totals(session: SparkSession, settings: base.Settings) -> dict[str, Any]:
    good = base.batch_of(session, settings, PARSED)
    rows = base.rows_of(good, SCHEMA).cache()
    dead = base.batch_of(session, settings, DEAD).select(
        fn.col("key").cast("string").alias("service"),
        fn.get_json_object(fn.col("value").cast("string"), "$.reason").alias("reason"),
    )
    services = (
        rows.groupBy("service")
        .agg(
            fn.count("*").alias("parsed"),
            fn.sum(is_error(fn.col("level")).cast("int")).alias("errors"),
            fn.min("time").cast("string").alias("first"),
            fn.max("time").cast("string").alias("last"),
        )
        .collect()
    )
    templates = (
        rows.groupBy("service", template(fn.col("message")).alias("template"))
        .count()
        .orderBy(fn.desc("count"), "template")
        .limit(10)
        .collect()
    )
    rows.unpersist()
    reasons = dead.groupBy("service", "reason").count().collect()
    return {
        "services": sorted(
            (row.service, row.parsed, row.errors, row.first, row.last) for row in services
        ),
        "dead": sorted((row.service or "", row.reason, row["count"]) for row in reasons),
        "templates": [(row.service, row["count"], row.template[:90]) for row in templates],
        "parsed": sum(row.parsed for row in services),
        "lost": sum(row["count"] for row in reasons),
        "alerts": base.batch_of(session, settings, ALERTS).count(),
    }


def show(found: dict[str, Any]) -> None:
    base.show("Services", ("service", "lines", "errors", "first", "last"), found["services"])
    base.show("Most frequent", ("service", "lines", "template"), found["templates"])
    if found["dead"]:
        base.show("Dead letters", ("service", "reason", "lines"), found["dead"])
    print(
        f"\n{found['parsed'] + found['lost']:,} lines: {found['parsed']:,} parsed, "
        f"{found['lost']:,} dead letters, {found['alerts']:,} alerts"
    )


def load(directory: Path, settings: base.Settings) -> int:
    """Write the lines of all files ``SERVICE.log`` into the topic. Returns their number."""
    count = 0
    with base.producer(settings, "zstd") as producer:
        for path in sorted(directory.glob("*.log")):
            service = path.stem.lower().encode()
            for line in path.read_bytes().split(b"\n")[:-1]:
                producer.send(settings.topic(LOGS), line.rstrip(b"\r"), service)
                count += 1
    return count


def stages(
    session: SparkSession, settings: base.Settings, directory: Path, late: str, limit: float
) -> list[Any]:
    return [
        lambda: base.to_topics(parse(session, settings), settings, "parse"),
        lambda: archive(session, settings, directory),
        lambda: base.changes_to_topics(rates(session, settings, late, limit), settings, "rates"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = base.parser("logs", (__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--load", type=Path, metavar="DIRECTORY", help="first write its *.log files"
    )
    parser.add_argument("--archive", type=Path, default=Path("log-archive"), help="for Parquet")
    parser.add_argument("--late", default="3650 days", help="how late a line may come")
    parser.add_argument("--alert-share", type=float, default=0.5, help="of errors in a minute")
    options: argparse.Namespace = parser.parse_args(arguments)
    settings = base.settings(options)

    def run() -> None:
        session = base.session("logs")
        base.ensure_topics(settings, *TOPICS, compacted=[RATES])
        if options.load is not None:
            print(f"{load(options.load, settings):,} lines are in {settings.topic(LOGS)}")
        base.run(
            settings,
            stages(session, settings, options.archive, options.late, options.alert_share),
        )
        show(totals(session, settings))

    return base.exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
