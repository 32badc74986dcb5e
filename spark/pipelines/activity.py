"""Clicks and searches of a web site: which search led to which page, and pages ranked per minute.

    searches ──┐
               ├──► visits ──► activity-visits
    clicks ────┤
               └──► counts ──► page-counts (a table)

- ``visits`` joins each click with the searches of the same user in the ``--within`` before it.
- ``counts`` counts clicks by minute and page. The rank of a page is its place in its minute.

Events may come late, and in any order: both queries wait ``--late`` for them. Later ones are left
out and counted.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from spark.pipelines import base

SEARCHES, CLICKS, VISITS, COUNTS = "searches", "clicks", "activity-visits", "page-counts"
TOPICS = (SEARCHES, CLICKS, VISITS)
SEARCH = "user STRING, query STRING, time TIMESTAMP"
CLICK = "user STRING, page STRING, time TIMESTAMP"
VISIT = "user STRING, query STRING, page STRING, searched TIMESTAMP, clicked TIMESTAMP"
COUNT = "minute TIMESTAMP, page STRING, clicks BIGINT"


def _events(
    session: SparkSession, settings: base.Settings, topic: str, schema: str, late: str
) -> DataFrame:
    records = base.stream_of(session, settings, topic)
    return base.rows_of(records, schema).withWatermark("time", late)


def visits(session: SparkSession, settings: base.Settings, late: str, within: str) -> DataFrame:
    searches = _events(session, settings, SEARCHES, SEARCH, late).select(
        fn.col("user").alias("searcher"), "query", fn.col("time").alias("searched")
    )
    clicks = _events(session, settings, CLICKS, CLICK, late)
    joined = clicks.join(
        searches,
        (fn.col("user") == fn.col("searcher"))
        & (fn.col("time") >= fn.col("searched"))
        & (fn.col("time") <= fn.col("searched") + fn.expr(f"interval {within}")),
    )
    fields = ("user", "query", "page", "searched", fn.col("time").alias("clicked"))
    return base.as_records(joined, fn.col("user"), fields, settings.topic(VISITS))


def counts(session: SparkSession, settings: base.Settings, late: str) -> DataFrame:
    counted = (
        _events(session, settings, CLICKS, CLICK, late)
        .groupBy(fn.window("time", "1 minute"), "page")
        .agg(fn.count("*").alias("clicks"))
        .withColumn("minute", fn.col("window.start"))
    )
    key = fn.concat_ws("|", fn.col("minute").cast("string"), "page")
    fields = ("minute", "page", "clicks")
    return base.as_records(counted, key, fields, settings.topic(COUNTS))


def ranking(counted: DataFrame) -> DataFrame:
    """The pages of each minute, with their ranks."""
    in_minute = Window.partitionBy("minute").orderBy(fn.desc("clicks"), "page")
    return counted.select("minute", "page", "clicks", fn.row_number().over(in_minute).alias("rank"))


# --------------------------------------------------------------------------------- result


def totals(session: SparkSession, settings: base.Settings, rows: int) -> dict[str, Any]:
    found = base.rows_of(base.batch_of(session, settings, VISITS), VISIT).cache()
    counted = base.table_of(session, settings, COUNTS, COUNT).cache()
    queries = (
        found.groupBy("query")
        .agg(
            fn.count("*").alias("visits"),
            fn.mode("page", deterministic=True).alias("page"),
            fn.avg(fn.unix_millis("clicked") - fn.unix_millis("searched")).alias("after_ms"),
        )
        .orderBy(fn.desc("visits"), "query")
        .limit(rows)
        .collect()
    )
    ranked = ranking(counted).where("rank <= 3").orderBy(fn.desc("minute"), "rank")
    by_minute = counted.groupBy("minute").agg(fn.sum("clicks").alias("clicks"))
    minutes = by_minute.orderBy("minute").collect()
    clicks = sum(row.clicks for row in minutes)
    result = {
        "visits": found.count(),
        "clicks": clicks,
        "left_out": base.left_out(session, settings, clicks, CLICKS),
        "queries": [(r.query, r.visits, r.page, r.after_ms / 1000) for r in queries],
        "pages": [
            (f"{row.minute:%Y-%m-%d %H:%M}", row["rank"], row.page, row.clicks)
            for row in ranked.limit(3 * rows).collect()
        ],
        "picture": base.sparkline([row.clicks for row in minutes[-72:]]),
    }
    found.unpersist()
    counted.unpersist()
    return result


def show(found: dict[str, Any]) -> None:
    base.show("Searches", ("query", "visits", "most often to", "after s"), found["queries"])
    base.show("Pages per minute", ("minute", "rank", "page", "clicks"), found["pages"])
    print(f"\nclicks per minute  {found['picture']}")
    print(
        f"{found['clicks']:,} clicks, {found['visits']:,} visits that came from a search"
        f"{base.say_left_out(found['left_out'])}"
    )


# ---------------------------------------------------------------------------------- input

WORDS = ("lantern", "teapot", "mug", "clock", "bunting", "lunchbox", "doormat", "cakestand")
BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def events(seed: int, count: int) -> Iterator[tuple[str, dict[str, str]]]:
    """``count`` clicks and the searches before most of them, as (topic, event). They are out of
    order by up to a minute."""
    rng = random.Random(seed)
    made: list[tuple[float, str, dict[str, str]]] = []
    for number in range(count):
        at = BEGIN + datetime.timedelta(seconds=number * 600 / max(count, 1))
        user = f"user-{rng.randrange(50)}"
        word = WORDS[min(int(rng.expovariate(0.5)), len(WORDS) - 1)]
        if rng.random() < 0.7:
            before = at - datetime.timedelta(seconds=rng.randrange(1, 240))
            search = {"user": user, "query": word, "time": before.isoformat()}
            made.append((number - rng.random(), SEARCHES, search))
        click = {"user": user, "page": f"/{word}", "time": at.isoformat()}
        made.append((number + rng.randrange(max(count // 10, 1)), CLICKS, click))
    for _, topic, event in sorted(made, key=lambda each: each[0]):
        yield topic, event


def load(settings: base.Settings, seed: int, count: int) -> None:
    with base.producer(settings, "lz4") as producer:
        for topic, event in events(seed, count):
            value = json.dumps(event).encode()
            producer.send(settings.topic(topic), value, event["user"].encode())


def stages(session: SparkSession, settings: base.Settings, late: str, within: str) -> list[Any]:
    def start_visits() -> StreamingQuery:
        return base.to_topics(visits(session, settings, late, within), settings, "visits")

    def start_counts() -> StreamingQuery:
        return base.changes_to_topics(counts(session, settings, late), settings, "counts")

    return [start_visits, start_counts]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = base.parser("activity", (__doc__ or "").splitlines()[0])
    parser.add_argument("--generate", type=int, metavar="N", help="first write N made-up clicks")
    parser.add_argument("--seed", type=int, default=1, help="of what is made up")
    parser.add_argument("--within", default="5 minutes", help="how long a search leads to clicks")
    parser.add_argument("--late", default="10 minutes", help="how late an event may come")
    parser.add_argument("--rows", type=int, default=10, help="of the tables at the end")
    options: argparse.Namespace = parser.parse_args(arguments)
    settings = base.settings(options)

    def run() -> None:
        session = base.session("activity")
        base.ensure_topics(settings, *TOPICS, compacted=[COUNTS])
        if options.generate:
            load(settings, options.seed, options.generate)
        base.run(settings, stages(session, settings, options.late, options.within))
        show(totals(session, settings, options.rows))

    return base.exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
