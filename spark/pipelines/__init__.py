"""Pipelines over topics, each a job for ``stele spark run NAME`` and for spark-submit.

Every pipeline is a few streaming queries. Their state is in topics and in their checkpoints, so a
pipeline that was stopped goes on where it was. docs/spark.md describes them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import cast

PIPELINES = {
    "orders": "order lines: checked by three rules, joined, revenue by country and hour",
    "logs": "log lines of many formats: one schema, error rates, alerts, archive, dead letters",
    "activity": "clicks joined with the searches before them, pages ranked per minute",
    "metrics": "averages, quantiles and rates over sliding windows, a downsampled history",
    "connectors": "files, Parquet, tables of databases and search indexes from and to topics",
    "replay": "a time range processed again by a new version of a rule, both results compared",
    "table": "a compacted topic as a table, now or as of a time or offsets; its changes as a feed",
}


def main_of(name: str) -> Callable[[Sequence[str]], int]:
    """The main function of a pipeline. It takes the command line. Raises KeyError."""
    PIPELINES[name]
    module = importlib.import_module(f"spark.pipelines.{name}")
    return cast(Callable[[Sequence[str]], int], module.main)
