"""The data source with a real cluster and a real Spark. All tests share one session."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from stele import Producer

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17"),
]

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
import stele.spark

bootstrap, empty, full, checkpoints = sys.argv[1:]
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
session.sparkContext.setLogLevel("OFF")
stele.spark.register(session)

def configured(way, topic, servers=bootstrap):
    return way.format("stele").option("bootstrap.servers", servers).option("subscribe", topic)

def count(topic, servers=bootstrap, **options):
    return configured(session.read, topic, servers).options(**options).load().count()

values = session.range(3).selectExpr("cast(cast(id as string) as binary) value")
stream = configured(session.readStream, full).load()
rates = session.readStream.format("rate").load().selectExpr(
    "cast(cast(value as string) as binary) value")

def awaited(writer):
    writer.option("checkpointLocation", checkpoints).start().awaitTermination()

BEGIN = json.dumps({full: {"0": 0}})
SHORT = {"kafka.default.api.timeout.ms": "1000"}
CASES = {
    "an empty topic": lambda: count(empty),
    "all": lambda: count(full),
    "from the latest": lambda: count(full, startingOffsets="latest"),
    "an empty range": lambda: count(full, startingOffsets=BEGIN, endingOffsets=BEGIN),
    "in pieces": lambda: count(full, minPartitions="7"),
    "no such topic": lambda: count("no-such-topic", **SHORT),
    "a dead cluster": lambda: count(full, servers="127.0.0.1:1", **SHORT),
    "a write": lambda: values.write.format("stele").option("topic", full).mode("append").save(),
    "a stream read": lambda: awaited(stream.writeStream.format("console")),
    "a stream written": lambda: awaited(rates.writeStream.format("stele").option("topic", full)),
}
results = {}
for name, case in CASES.items():
    try:
        results[name] = case()
    except Exception as error:
        results[name] = str(error)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(
    bootstrap: str,
    create_topic: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, int | str]:
    """The result of each query: a count, or the text of its error."""
    empty, full = create_topic(), create_topic(partitions=1)
    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send(full, b"%d" % number)
    checkpoints = str(tmp_path_factory.mktemp("checkpoints"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, bootstrap, empty, full, checkpoints],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, int | str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("case", "result"),
    [
        ("an empty topic", 0),
        ("all", 100),
        ("from the latest", 0),
        ("an empty range", 0),
        ("in pieces", 100),
    ],
)
def test_a_batch_is_what_its_range_holds(
    results: dict[str, int | str], case: str, result: int
) -> None:
    assert results[case] == result


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("no such topic", "there is no topic 'no-such-topic'"),
        ("a dead cluster", "cannot reach the cluster: 127.0.0.1:1"),
        ("a write", 'format "stele" does not write yet'),
        ("a stream read", 'format "stele" does not read streams yet'),
        ("a stream written", 'format "stele" does not write yet'),
    ],
)
def test_what_cannot_be_is_said_in_words(
    results: dict[str, int | str], case: str, words: str
) -> None:
    assert words in str(results[case])
