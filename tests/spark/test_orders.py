"""The job of order lines on a standalone cluster of Spark: a master and two workers."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.orders import OrderFigures, generate_orders
from stele import Producer
from tests.support.spark_cluster import spark_cluster, submit

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17"),
]

LINES = 5_000
JOB = Path(__file__).parents[2] / "spark" / "orders.py"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with spark_cluster(tmp_path_factory.mktemp("spark")) as address:
        yield address


@pytest.fixture(scope="module")
def orders_topic(bootstrap: str, create_topic: Callable[..., str]) -> str:
    topic = create_topic(partitions=3)
    with Producer(bootstrap, compression="lz4") as producer:
        for line in generate_orders(7, LINES):
            producer.send(topic, line.value, line.key)
    return topic


def test_a_submitted_jobs_figures_are_those_of_the_lines(
    master: str, bootstrap: str, orders_topic: str
) -> None:
    expected = OrderFigures()
    expected.add(line.value for line in generate_orders(7, LINES))
    arguments = ["--json", "--topic", orders_topic, "--bootstrap-server", bootstrap]
    done = submit(master, JOB, arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["lines"] == LINES
    assert figures["quantity"] == expected.quantity
    assert figures["revenue"] == f"{expected.revenue:.2f}"
    assert [each["country"] for each in figures["top_countries"]] == [
        country for country, _, _ in expected.top_countries()
    ]


def test_executors_without_the_package_say_so(
    master: str, bootstrap: str, orders_topic: str, tmp_path: Path
) -> None:
    """Their Python does not find ``stele``, as if its wheel was not installed."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'stele':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    bare.chmod(0o755)
    arguments = ["--json", "--topic", orders_topic, "--bootstrap-server", bootstrap]
    conf = {"spark.pyspark.python": str(bare), "spark.task.maxFailures": "1"}
    done = submit(master, JOB, arguments, conf)
    assert done.returncode != 0
    assert "No module named 'stele" in done.stderr
