"""The job of order lines on a standalone cluster of Spark: a master and two workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.orders import OrderFigures, generate_orders
from stele import Producer
from tests.spark.conftest import NEEDS_JAVA
from tests.support.spark_cluster import spark_cluster, submit

pytestmark = [
    pytest.mark.processes,
    NEEDS_JAVA,
]

LINES = 5_000
JOB = Path(__file__).parents[2] / "spark" / "orders.py"


def test_a_submitted_jobs_figures_agree_with_the_lines(
    bootstrap: str, create_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, expected = create_topic(partitions=3), OrderFigures()
    with Producer(bootstrap, compression="lz4") as producer:
        for line in generate_orders(7, LINES):
            producer.send(topic, line.value, line.key)
    expected.add(line.value for line in generate_orders(7, LINES))
    arguments = ["--json", "--topic", topic, "--bootstrap-server", bootstrap]
    with spark_cluster(tmp_path) as master:
        done = submit(master, JOB, arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["lines"] == LINES
    assert figures["quantity"] == expected.quantity
    assert figures["revenue"] == f"{expected.revenue:.2f}"
    assert [each["country"] for each in figures["top_countries"]] == [
        country for country, _, _ in expected.top_countries()
    ]
