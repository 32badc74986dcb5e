"""The orders job over a real cluster and a real Spark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from cli.orders import OrderFigures, generate_orders
from stele import Producer

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17"),
]

LINES = 5_000


def run_job(bootstrap: str, topic: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spark.orders", "--json", "--topic", topic]
    # The job has a JVM of its own, and not that of the tests' session.
    own = {name: value for name, value in os.environ.items() if "PYSPARK_GATEWAY" not in name}
    return subprocess.run(
        [*command, "--bootstrap-server", bootstrap, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**own, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )


@pytest.fixture(scope="module")
def orders_topic(bootstrap: str, create_topic: Callable[..., str]) -> str:
    topic = create_topic(partitions=3)
    with Producer(bootstrap, compression="lz4") as producer:
        for line in generate_orders(7, LINES):
            producer.send(topic, line.value, line.key)
    return topic


def test_the_jobs_figures_are_those_of_the_lines(bootstrap: str, orders_topic: str) -> None:
    expected = OrderFigures()
    expected.add(line.value for line in generate_orders(7, LINES))
    done = run_job(bootstrap, orders_topic)
    assert done.returncode == 0, done.stderr[-4000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["lines"] == LINES
    assert figures["quantity"] == expected.quantity
    assert figures["revenue"] == f"{expected.revenue:.2f}"
    assert [each["country"] for each in figures["top_countries"]] == [
        country for country, _, _ in expected.top_countries()
    ]


def test_a_range_of_offsets_is_read_exactly(bootstrap: str, orders_topic: str) -> None:
    done = run_job(
        bootstrap,
        orders_topic,
        "--starting-offsets",
        json.dumps({orders_topic: {"0": 10, "1": -1, "2": -1}}),
        "--ending-offsets",
        json.dumps({orders_topic: {"0": 25}}),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1])["lines"] == 15


def test_offsets_that_are_not_there_fail_the_query_in_words(
    bootstrap: str, orders_topic: str
) -> None:
    ending = json.dumps({orders_topic: {"0": 10**9}})
    done = run_job(bootstrap, orders_topic, "--ending-offsets", ending)
    assert done.returncode != 0
    assert "failOnDataLoss=false" in done.stderr
