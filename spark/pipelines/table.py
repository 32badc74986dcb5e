"""A compacted topic as a table: now, as of a time or of offsets, and as a feed of its changes.

The table has the last value of each key. A tombstone, a record without a value, removes its key.
Compaction forgets earlier values in time, so an old ``--as-of`` shows what is left of that time.

The feed (``--changes-to``) has one record for each change: the key, and as JSON whether it was put
or deleted, with the value and the place and time of the record.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from spark.pipelines import base


def as_of(
    session: SparkSession, settings: base.Settings, topic: str, ends: dict[str, str]
) -> DataFrame:
    """The rows of the table: key, value, partition, offset, timestamp. ``ends``: options of the
    source that say where reading ends; empty: now."""
    records = base.batch_of(session, settings, topic, **ends)
    place = fn.struct("value", "partition", "offset", "timestamp")
    last = records.groupBy("key").agg(fn.max_by(place, "offset").alias("last"))
    text = fn.col("last.value").cast("string").alias("value")
    return last.where("key is not null and last.value is not null").select(
        fn.col("key").cast("string"), text, "last.partition", "last.offset", "last.timestamp"
    )


def changes(session: SparkSession, settings: base.Settings, topic: str, target: str) -> DataFrame:
    """The feed of changes, for the topic ``target``."""
    records = base.stream_of(session, settings, topic).where("key is not null")
    operation = fn.when(fn.col("value").isNull(), "delete").otherwise("put")
    change = fn.struct(
        operation.alias("op"),
        fn.col("value").cast("string").alias("value"),
        "partition",
        "offset",
        "timestamp",
    )
    name = fn.lit(settings.topic(target)).alias("topic")
    return records.select("key", fn.to_json(change).alias("value"), name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = base.parser("table", (__doc__ or "").splitlines()[0])
    parser.add_argument("--topic", required=True, help="the compacted topic")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--as-of", metavar="TIME", help="ISO 8601, e.g. 2026-11-24T06:00:00Z")
    which.add_argument("--as-of-offsets", metavar="JSON", help='e.g. {"prices": {"0": 17}}')
    parser.add_argument("--changes-to", metavar="TOPIC", help="write the feed of changes")
    parser.add_argument("--rows", type=int, default=20, help="how many to show")
    options: argparse.Namespace = parser.parse_args(arguments)
    settings = base.settings(options)

    def run() -> None:
        session = base.session("table")
        if options.changes_to:
            base.ensure_topics(settings, options.changes_to)

            def feed() -> StreamingQuery:
                frame = changes(session, settings, options.topic, options.changes_to)
                return base.to_topics(frame, settings, f"changes-{options.topic}")

            base.run(settings, [feed])
        rows = as_of(session, settings, options.topic, _ends(options)).cache()
        shown = rows.orderBy("key").limit(options.rows).collect()
        base.show(
            f"{options.topic}, {options.as_of or options.as_of_offsets or 'now'}",
            ("key", "value", "partition", "offset", "time"),
            [(r.key, r.value[:80], r.partition, r.offset, str(r.timestamp)) for r in shown],
        )
        print(f"\n{rows.count():,} keys")

    return base.exit_code(run)


def _ends(options: argparse.Namespace) -> dict[str, str]:
    if options.as_of_offsets:
        return {"endingOffsets": options.as_of_offsets}
    if not options.as_of:
        return {}
    return {"endingTimestamp": str(base.millis("--as-of", options.as_of) + 1)}


if __name__ == "__main__":
    sys.exit(main())
