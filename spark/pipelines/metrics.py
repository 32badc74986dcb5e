"""Measurements: average, quantiles and rates over sliding windows, and a downsampled history.

    metrics ──► windows ──► metric-windows (a table)
       └──────► history ──► metric-history (a table)

A measurement is JSON: ``{"name": "…", "time": "…", "value": 1.5}``. ``windows`` has a window of
``--window`` every ``--slide``. ``history`` has one row for each ``--resolution``, which is small
enough to be kept for years.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from spark.pipelines import base

METRICS, WINDOWS, HISTORY = "metrics", "metric-windows", "metric-history"
MEASUREMENT = "name STRING, time TIMESTAMP, value DOUBLE"
SUMMARY = (
    "name STRING, start TIMESTAMP, end TIMESTAMP, count BIGINT, average DOUBLE, min DOUBLE, "
    "max DOUBLE, p50 DOUBLE, p95 DOUBLE, p99 DOUBLE, per_second DOUBLE"
)
QUANTILES = (0.5, 0.95, 0.99)
ACCURACY = 1_000
"""A quantile is off by at most this part of the measurements of a window."""


def summaries(
    session: SparkSession,
    settings: base.Settings,
    window: tuple[str, str],
    late: str,
    topic: str,
) -> DataFrame:
    """The rows of a table of windows (length and distance) that a batch changes."""
    measured = base.rows_of(base.stream_of(session, settings, METRICS), MEASUREMENT)
    length, slide = window
    quantiles = fn.percentile_approx("value", list(QUANTILES), ACCURACY)
    found = (
        measured.where("name is not null and time is not null and value is not null")
        .withWatermark("time", late)
        .groupBy("name", fn.window("time", length, slide))
        .agg(
            fn.count("*").alias("count"),
            fn.avg("value").alias("average"),
            fn.min("value").alias("min"),
            fn.max("value").alias("max"),
            quantiles.alias("quantiles"),
        )
    )
    start, end = fn.col("window.start"), fn.col("window.end")
    seconds = fn.unix_seconds(end) - fn.unix_seconds(start)
    fields: list[str | Column] = [
        "name",
        start.alias("start"),
        end.alias("end"),
        *("count", "average", "min", "max"),
        *(fn.col("quantiles")[n].alias(name) for n, name in enumerate(("p50", "p95", "p99"))),
        (fn.col("count") / seconds).alias("per_second"),
    ]
    key = fn.concat_ws("|", "name", start.cast("string"))
    return base.as_records(found, key, fields, settings.topic(topic))


# --------------------------------------------------------------------------------- result


def totals(session: SparkSession, settings: base.Settings, rows: int) -> dict[str, Any]:
    history = base.table_of(session, settings, HISTORY, SUMMARY).orderBy("name", "start").collect()
    windows = base.table_of(session, settings, WINDOWS, SUMMARY)
    busiest = windows.orderBy(fn.desc("per_second"), "name", "start").limit(rows).collect()
    series: dict[str, list[Any]] = {}
    for row in history:
        series.setdefault(row.name, []).append(row)
    pictures = [
        (
            name,
            sum(row["count"] for row in points),
            sum(row.average * row["count"] for row in points) / sum(r["count"] for r in points),
            max(row.p95 for row in points),
            base.sparkline([row.average for row in points[-48:]]),
        )
        for name, points in series.items()
    ]
    measurements = sum(row["count"] for row in history)
    return {
        "measurements": measurements,
        "left_out": base.left_out(session, settings, measurements, METRICS),
        "series": sorted(pictures, key=lambda row: (-row[1], row[0])),
        "busiest": [
            (row.name, str(row.start), row["count"], row.average, row.p50, row.p99, row.per_second)
            for row in busiest
        ],
    }


def show(found: dict[str, Any], rows: int) -> None:
    series = ("name", "count", "average", "highest p95", "averages over time")
    base.show("Series", series, found["series"][:rows])
    windows = ("name", "from", "count", "average", "p50", "p99", "per second")
    base.show("Busiest windows", windows, found["busiest"])
    print(
        f"\n{found['measurements']:,} measurements of {len(found['series']):,} series"
        f"{base.say_left_out(found['left_out'])}"
    )


# ---------------------------------------------------------------------------------- input


def order_totals(path: Path, most: int | None = None) -> Iterator[dict[str, Any]]:
    """The totals of order lines (the CSV of UCI's "Online Retail") as measurements by country."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for number, row in enumerate(csv.DictReader(lines)):
            if number == most:
                return
            total = float(row["UnitPrice"]) * int(row["Quantity"])
            yield {"name": row["Country"], "time": row["InvoiceDate"], "value": total}


def load(path: Path, settings: base.Settings, most: int | None = None) -> int:
    """Write the measurements of a file into the topic. Returns their number."""
    count = 0
    with base.producer(settings, "lz4") as producer:
        for each in order_totals(path, most):
            producer.send(settings.topic(METRICS), json.dumps(each).encode(), each["name"].encode())
            count += 1
    return count


def stages(
    session: SparkSession,
    settings: base.Settings,
    sliding: tuple[str, str],
    resolution: str,
    late: str,
) -> list[Any]:
    def stage(name: str, window: tuple[str, str], topic: str) -> Any:
        def start() -> StreamingQuery:
            frame = summaries(session, settings, window, late, topic)
            return base.changes_to_topics(frame, settings, name)

        return start

    return [
        stage("windows", sliding, WINDOWS),
        stage("history", (resolution, resolution), HISTORY),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = base.parser("metrics", (__doc__ or "").splitlines()[0])
    parser.add_argument("--load", type=Path, metavar="FILE", help="first write these order lines")
    parser.add_argument("--window", default="1 hour")
    parser.add_argument("--slide", default="15 minutes", help="a window begins every so often")
    parser.add_argument("--resolution", default="1 day", help="of the history")
    parser.add_argument("--late", default="60 days", help="how late a measurement may come")
    parser.add_argument("--rows", type=int, default=10, help="of the tables at the end")
    options: argparse.Namespace = parser.parse_args(arguments)
    settings = base.settings(options)

    def run() -> None:
        session = base.session("metrics")
        base.ensure_topics(settings, METRICS, compacted=[WINDOWS, HISTORY])
        if options.load is not None:
            print(f"{load(options.load, settings):,} measurements are written")
        sliding = (options.window, options.slide)
        base.run(settings, stages(session, settings, sliding, options.resolution, options.late))
        show(totals(session, settings, options.rows), options.rows)

    return base.exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
