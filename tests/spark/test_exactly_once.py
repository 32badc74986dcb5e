"""Writes exactly once, with a real cluster: tasks and drivers that die at any step.

Spark is not needed to run a task or a driver's step, so most tests have none.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from chaos.process_cluster import ProcessCluster
from stele import Producer
from stele.spark.batch import SteleReader
from stele.spark.decisions import Entry
from stele.spark.exactly_once_sink import (
    Attempt,
    ExactlyOnce,
    ExactlyOnceWriter,
    Target,
    TaskResult,
    WriteError,
    sweep,
)
from stele.spark.ledger import Ledger, admin_of
from stele.spark.options import SinkOptions, SourceOptions
from stele.spark.rows import RowError, RowShape
from tests.support.spark_driver import everything

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.processes

VALUES = StructType().add("value", StringType())


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": list(values)})])


class Stage:
    """A topic, and sinks that write into it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.write = uuid.uuid4().hex

    def sink(self) -> ExactlyOnce:
        """One as it is made in each process of Spark."""
        options = SinkOptions.parse({"bootstrap.servers": self.bootstrap, "topic": self.topic})
        return ExactlyOnce(options, RowShape.of(VALUES, self.topic))

    def task(self, run: str, batch: int, *values: str, attempt: int = 0) -> TaskResult:
        target = Target(self.write, run, batch)
        return self.sink().run_task(target, Attempt(0, attempt), rows(*values))

    def commit(self, *results: TaskResult) -> None:
        self.sink().commit(results, results[0].target)

    def visible(self) -> list[str]:
        """What readers of committed records see, in order."""
        options = SourceOptions.parse(
            {
                "bootstrap.servers": self.bootstrap,
                "subscribe": self.topic,
                "kafka.isolation.level": "read_committed",
            }
        )
        reader = SteleReader(options)
        return [
            value.decode()
            for task in reader.partitions()
            for batch in reader.read(task)
            for value in batch.column("value").to_pylist()
        ]


@pytest.fixture
def stage(bootstrap: str, create_topic: Callable[..., str]) -> Stage:
    return Stage(bootstrap, create_topic())


def test_rows_are_visible_from_the_decision_on(stage: Stage) -> None:
    one, other = stage.task("r1", 0, "a", "b"), stage.task("r1", 0, "c", attempt=1)
    assert stage.visible() == []
    stage.commit(one, other)
    assert sorted(stage.visible()) == ["a", "b", "c"]


def test_a_batch_that_runs_again_after_its_decision_writes_nothing(stage: Stage) -> None:
    stage.commit(stage.task("r1", 0, "a"))
    again = stage.task("r2", 0, "a")
    assert (again.is_decided, again.prepared) == (True, None)
    stage.commit(again)
    stage.commit(stage.task("r2", 1, "b"))
    assert stage.visible() == ["a", "b"]


def test_a_driver_that_dies_before_its_decision_is_followed_by_another(stage: Stage) -> None:
    late = stage.task("r1", 0, "a")
    stage.commit(stage.task("r2", 0, "a"))
    with pytest.raises(WriteError, match="another run of this query, r2, has begun since"):
        stage.task("r1", 1, "b")
    stage.commit(late)  # its decision does not stand, and that of r2 is finished again
    assert stage.visible() == ["a"]


def test_a_decision_of_an_earlier_run_does_not_stand(stage: Stage) -> None:
    late, _ = stage.task("r1", 0, "a"), stage.task("r2", 0, "a")
    with pytest.raises(WriteError, match="batch 0 is not committed"):
        stage.commit(late)
    assert stage.visible() == []


def test_an_aborted_batch_is_gone_and_runs_again(stage: Stage) -> None:
    failed = stage.task("r1", 0, "a")
    stage.sink().abort(failed.target)
    assert stage.visible() == []
    with pytest.raises(WriteError, match="batch 0 was aborted by its driver"):
        stage.task("r1", 0, "a", attempt=1)
    stage.commit(stage.task("r2", 0, "a"))
    assert stage.visible() == ["a"]


def test_an_abort_after_the_decision_finishes_it(stage: Stage) -> None:
    done = stage.task("r1", 0, "a")
    stage.commit(done)
    stage.sink().abort(done.target)
    assert stage.visible() == ["a"]


def test_a_task_that_fails_leaves_nothing_open(stage: Stage) -> None:
    batch = pa.record_batch({"value": ["a"], "topic": pa.array([None], pa.string())})
    schema = StructType().add("value", StringType()).add("topic", StringType())
    options = SinkOptions.parse({"bootstrap.servers": stage.bootstrap})
    sink = ExactlyOnce(options, RowShape.of(schema, ""))
    good = pa.record_batch({"value": ["a"], "topic": [stage.topic]})
    with pytest.raises(RowError, match="a row has no topic"):
        sink.run_task(Target(stage.write, "r1", 0), Attempt(0, 0), iter([good, batch]))
    with Producer(stage.bootstrap) as producer:
        producer.send(stage.topic, b"after")
    assert stage.visible() == ["after"]  # no open transaction holds it back


def abandoned(stage: Stage, write: str, run: str) -> None:
    """An attempt that was killed before it prepared leaves an open transaction."""
    producer = Producer(
        stage.bootstrap,
        transactional_id=f"spark/{write}/{run}/0/7",
        transaction_two_phase_commit_enable=True,
    )
    producer.begin_transaction()
    producer.send(stage.topic, b"half").result()
    producer.abort()


def test_a_failed_batch_write_aborts_also_what_no_task_tells_of(stage: Stage) -> None:
    options = SinkOptions.parse({"bootstrap.servers": stage.bootstrap, "txnAppId": stage.write})
    writer = ExactlyOnceWriter(options, RowShape.of(VALUES, stage.topic))
    abandoned(stage, stage.write, "r")
    with Producer(stage.bootstrap) as producer:
        producer.send(stage.topic, b"after")
    assert stage.visible() == []  # the open transaction holds it back
    writer.abort([None, None])
    assert stage.visible() == ["after"]


def test_what_dead_drivers_have_left_is_swept(stage: Stage) -> None:
    """One died before its decision, with an attempt that has prepared and one that has not; another
    after it."""
    late = stage.task("r1", 0, "lost")
    abandoned(stage, stage.write, "r1")
    decided = Stage(stage.bootstrap, stage.topic)
    done = decided.task("r1", 0, "kept")
    options = SinkOptions.parse({"bootstrap.servers": stage.bootstrap})
    assert done.prepared is not None
    with admin_of(options) as admin, Ledger(options, admin) as ledger:
        ledger.write(Entry("commit", *done.target, (done.prepared,)))
    assert sweep(options, older_than_ms=3_600_000) == []
    swept = sweep(options, older_than_ms=0)
    assert len([name for name in swept if stage.write in name]) == 2
    assert stage.visible() == ["kept"]
    with pytest.raises(WriteError, match="batch 0 is not committed"):
        stage.commit(late)
    assert sweep(options, older_than_ms=0) == []


def test_a_task_without_rows_prepares_nothing(stage: Stage) -> None:
    empty = stage.task("r1", 0)
    assert (empty.prepared, empty.is_decided) == (None, False)
    stage.commit(empty)
    assert stage.visible() == []


def test_a_query_writes_each_batch_once_over_restarts(
    spark: SparkSession, stage: Stage, create_topic: Callable[..., str], tmp_path: Path
) -> None:
    source = create_topic(partitions=2)
    with Producer(stage.bootstrap) as producer:
        for number in range(20):
            producer.send(source, b"%d" % number)

    def run() -> None:
        stream = spark.readStream.format("stele").option("kafka.bootstrap.servers", stage.bootstrap)
        stream = stream.options(subscribe=source, startingOffsets="earliest")
        writer = (
            stream.option("maxOffsetsPerTrigger", "12")
            .load()
            .selectExpr("key", "value")
            .writeStream.format("stele")
            .option("kafka.bootstrap.servers", stage.bootstrap)
            .options(topic=stage.topic, checkpointLocation=str(tmp_path))
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    commits = tmp_path / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
    # The driver died after its decision, and before Spark noted that the batch is done.
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink()
    run()
    assert sorted(map(int, stage.visible())) == list(range(20))


def test_killed_drivers_and_a_killed_broker_cost_and_double_nothing(
    process_cluster: ProcessCluster, create_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Drivers are killed at random moments, and a broker with one of them."""
    stage = Stage(process_cluster.bootstrap_servers, create_topic())
    checkpoint, rng = tmp_path / "checkpoint", random.Random(16)
    checkpoint.write_text("0")
    batches, broker = 8, process_cluster.broker_ids[0]

    def driver(seed: int) -> subprocess.Popen[bytes]:
        arguments = [stage.bootstrap, stage.topic, stage.write, str(checkpoint), str(batches)]
        command = [sys.executable, "-m", "tests.support.spark_driver", *arguments, str(seed)]
        return subprocess.Popen(command)

    def kill_a_driver(seed: int) -> None:
        """Some time after it has done a batch."""
        begun_at = checkpoint.read_text()
        running = driver(seed)
        while checkpoint.read_text() == begun_at and running.poll() is None:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 1))
        running.kill()
        running.wait()

    kill_a_driver(1)
    kill_a_driver(2)
    process_cluster.kill(broker)
    try:
        kill_a_driver(3)
    finally:
        asyncio.run(process_cluster.restart(broker))
    assert driver(4).wait(120) == 0
    assert checkpoint.read_text() == str(batches)
    assert sorted(stage.visible()) == sorted(everything(batches))
