"""A time range of a topic, processed again by a new version of a rule; the two results compared.

    TOPIC ──► rule ──► INTO  ◄── compared with ──► the topic that an earlier version has written

A rule is a function of a frame with the columns of the source and of parameters. It returns the
columns ``key`` (unique for each record: ``record_id``) and ``value``, both strings. It is named
``MODULE:FUNCTION``; ``orders`` is the rule of order lines.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from spark.pipelines import base
from spark.pipelines.order_rules import FRAUD_LIMIT, details, fraud, parsed

Rule = Callable[..., DataFrame]

SAME, DIFFERENT, ONLY_BEFORE, ONLY_NOW = "same", "different", "only before", "only now"


def record_id() -> Column:
    """The place of the input record: the same for every version of a rule."""
    return fn.concat_ws("-", "topic", "partition", "offset")


def judged_orders(records: DataFrame, limit: str = str(FRAUD_LIMIT)) -> DataFrame:
    """Whether an order line is valid, and why not. ``limit`` is that of its total."""
    order = fn.col("order")
    reasons = fn.array_compact(fn.array(details(order), fraud(order, int(limit))))
    lines = records.select(record_id().alias("key"), parsed(fn.col("value")).alias("order"))
    verdict = fn.when(fn.size(reasons) == 0, "validated").otherwise("failed")
    value = fn.to_json(fn.struct(verdict.alias("verdict"), reasons.alias("reasons")))
    return lines.select("key", value.alias("value"))


RULES: Mapping[str, Rule] = {"orders": judged_orders}


def rule_of(name: str) -> Rule:
    """Raises PipelineError."""
    if name in RULES:
        return RULES[name]
    module, _, function = name.partition(":")
    try:
        found: Rule = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        known = ", ".join(RULES)
        raise base.PipelineError(
            f"a rule is MODULE:FUNCTION or one of {known}, not {name!r}: {error}"
        ) from None
    return found


def parameters_of(given: Sequence[str]) -> dict[str, str]:
    """Raises PipelineError."""
    if wrong := [each for each in given if "=" not in each]:
        raise base.PipelineError(f"--set is NAME=VALUE, not {wrong[0]!r}")
    return dict(each.split("=", 1) for each in given)


def replayed(
    session: SparkSession,
    settings: base.Settings,
    topic: str,
    into: str,
    rule: Callable[[DataFrame], DataFrame],
    begin_ms: int,
    end_ms: int,
) -> DataFrame:
    """What the rule makes of the records from ``begin_ms`` up to, but not including, ``end_ms``."""
    records = base.stream_of(
        session,
        settings,
        topic,
        startingTimestamp=str(begin_ms),
        startingOffsetsByTimestampStrategy="latest",
    )
    time_ms = fn.unix_millis("timestamp")
    rows = rule(records.where((time_ms >= begin_ms) & (time_ms < end_ms)))
    return rows.select("key", "value", fn.lit(settings.topic(into)).alias("topic"))


# --------------------------------------------------------------------------------- result


def comparison(session: SparkSession, settings: base.Settings, before: str, now: str) -> DataFrame:
    """Each key of either result, with both values and what they are to each other."""

    def last(topic: str, name: str) -> DataFrame:
        records = base.batch_of(session, settings, topic)
        place = fn.max_by(fn.struct("value"), fn.struct("timestamp", "offset")).alias("last")
        rows = records.groupBy(fn.col("key").cast("string").alias("key")).agg(place)
        return rows.select("key", fn.col("last.value").cast("string").alias(name))

    both = last(before, "before").join(last(now, "now"), "key", "full")
    kind = (
        fn.when(fn.col("before").isNull(), ONLY_NOW)
        .when(fn.col("now").isNull(), ONLY_BEFORE)
        .when(fn.col("before") == fn.col("now"), SAME)
        .otherwise(DIFFERENT)
    )
    return both.select("key", kind.alias("kind"), "before", "now")


def compared(
    session: SparkSession, settings: base.Settings, before: str, now: str, rows: int
) -> dict[str, Any]:
    found = comparison(session, settings, before, now).cache()
    counts = {row.kind: row["count"] for row in found.groupBy("kind").count().collect()}
    examples = found.where(fn.col("kind") != SAME).orderBy("kind", "key").limit(rows).collect()
    found.unpersist()
    return {
        "counts": {kind: counts.get(kind, 0) for kind in (SAME, DIFFERENT, ONLY_BEFORE, ONLY_NOW)},
        "examples": [
            (row.kind, row.key, (row.before or "")[:60], (row.now or "")[:60]) for row in examples
        ],
    }


def show(found: dict[str, Any], before: str, now: str) -> None:
    if found["examples"]:
        base.show("Differences", ("kind", "record", before, now), found["examples"])
    counts = found["counts"]
    most = max(sum(counts.values()), 1)
    rows = [(kind, n, "█" * round(40 * n / most)) for kind, n in counts.items()]
    base.show(f"{before} and {now}", ("kind", "records", ""), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = base.parser("replay", (__doc__ or "").splitlines()[0])
    parser.add_argument("--topic", required=True, help="what is processed again")
    parser.add_argument("--into", required=True, metavar="TOPIC", help="where the result goes")
    parser.add_argument("--rule", required=True, help=f"MODULE:FUNCTION, or {', '.join(RULES)}")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the rule"
    )
    parser.add_argument("--from", dest="begin", required=True, metavar="TIME", help="ISO 8601")
    parser.add_argument("--to", dest="end", required=True, metavar="TIME", help="not included")
    parser.add_argument("--compare-with", metavar="TOPIC", help="the result of an earlier version")
    parser.add_argument("--rows", type=int, default=10, help="of examples")
    options: argparse.Namespace = parser.parse_args(arguments)
    settings = base.settings(options)

    def run() -> None:
        rule = rule_of(options.rule)
        parameters = parameters_of(options.set)
        begin, end = base.millis("--from", options.begin), base.millis("--to", options.end)
        session = base.session("replay")
        base.ensure_topics(settings, options.into)

        def start() -> StreamingQuery:
            frame = replayed(
                session,
                settings,
                options.topic,
                options.into,
                lambda records: rule(records, **parameters),
                begin,
                end,
            )
            return base.to_topics(frame, settings, f"replay-{options.into}")

        base.run(settings, [start])
        if options.compare_with:
            found = compared(session, settings, options.compare_with, options.into, options.rows)
            show(found, options.compare_with, options.into)

    return base.exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
