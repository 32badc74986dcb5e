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
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from chaos.process_cluster import ProcessCluster
from stele import Admin, Consumer, NewTopic, Producer
from stele.spark.batch import SteleReader
from stele.spark.decisions import Entry
from stele.spark.doors import Door
from stele.spark.exactly_once_sink import (
    Attempt,
    ExactlyOnce,
    ExactlyOnceWriter,
    LostTransactionError,
    Target,
    TaskResult,
    WriteError,
    sweep,
)
from stele.spark.options import SinkOptions, SourceOptions
from stele.spark.rows import RowError, RowShape
from stele.sync.face import Face
from tests.spark.conftest import HAS_STREAMS
from tests.support.spark_driver import everything

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.processes

VALUES = StructType().add("value", StringType())


def another_process(options: SinkOptions) -> closing[Door]:
    """Clients that share nothing with the clients of this process's sinks."""
    return closing(Door(options))


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": list(values)})])


class Stage:
    """A topic, and sinks that write into it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.write = uuid.uuid4().hex

    def options(self, **more: str) -> SinkOptions:
        given = {"bootstrap.servers": self.bootstrap, "topic": self.topic, **more}
        return SinkOptions.parse(given)

    def sink(self) -> ExactlyOnce:
        """One as it is made in each process of Spark."""
        return ExactlyOnce(self.options(), RowShape.of(VALUES, self.topic))

    def save(self, version: int, *values: str, **more: str) -> None:
        """A batch write with a name and number, as Spark does it."""
        options = self.options(txnAppId=self.write, txnVersion=str(version), **more)
        writer = ExactlyOnceWriter(options, RowShape.of(VALUES, self.topic))
        writer.commit([writer.write(rows(*values))])

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
    stage.commit(late)  # its decision does not stand, and r2's is finished again
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


def named(result: TaskResult) -> Target:
    """The target as the ledger names it."""
    return result.target._replace(write=f"{result.target.write}@{result.output}")


def abandoned(stage: Stage, write: str, run: str, ledger: str = "spark-ledger") -> None:
    """An attempt that was killed before it prepared leaves an open transaction."""
    with Admin(stage.bootstrap) as admin:
        (topic,) = admin.describe_topics([stage.topic])
    producer = Producer(
        stage.bootstrap,
        transactional_id=f"spark/{ledger}/{write}@{topic.name}:{topic.topic_id.hex()}/{run}/0/7",
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
    with another_process(options) as door:
        door.ledger.write(Entry("commit", *named(done), (done.prepared,)))
    assert sweep(options, older_than_ms=3_600_000) == []
    swept = sweep(options, older_than_ms=0)
    assert len([name for name in swept if stage.write in name]) == 2
    assert stage.visible() == ["kept"]
    with pytest.raises(WriteError, match="batch 0 is not committed"):
        stage.commit(late)
    assert sweep(options, older_than_ms=0) == []


def test_the_sweep_of_one_ledger_leaves_the_writes_of_another(stage: Stage) -> None:
    abandoned(stage, stage.write, "r1", ledger="another")
    swept = sweep(SinkOptions.parse({"bootstrap.servers": stage.bootstrap}), older_than_ms=0)
    assert [name for name in swept if stage.write in name] == []
    other = {"bootstrap.servers": stage.bootstrap, "ledgerTopic": "another"}
    assert len(sweep(SinkOptions.parse(other), older_than_ms=0)) == 1


# ---------------------------------------------------------------------------- open clients


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of clients that this process makes, one after the other."""
    kinds: list[str] = []
    begin = Face.__init__

    def note(self: Face) -> None:
        kinds.append(type(self).__name__)
        begin(self)

    monkeypatch.setattr(Face, "__init__", note)
    return kinds


def test_a_further_batch_needs_one_client_for_each_task_with_rows(
    stage: Stage, made: list[str]
) -> None:
    stage.commit(stage.task("r1", 0, "a"))
    made.clear()
    stage.commit(stage.task("r1", 1, "b"), stage.task("r1", 1, "c", attempt=1))
    assert made == ["Producer", "Producer"]
    made.clear()
    stage.commit(stage.task("r1", 2))
    assert made == []
    stage.sink().abort(stage.task("r1", 3).target)
    assert made == []
    assert stage.visible() == ["a", "b", "c"]


def test_another_process_that_takes_over_is_seen_through_open_clients(stage: Stage) -> None:
    first = stage.task("r1", 0, "a")
    stage.commit(first)
    with another_process(stage.options()) as door:
        door.ledger.refresh()
        door.ledger.write(Entry("claim", named(first).write, "r2"))
    with pytest.raises(WriteError, match="another run of this query, r2, has begun since"):
        stage.task("r1", 1, "b")
    assert stage.visible() == ["a"]


def test_a_ledger_that_was_created_again_knows_nothing_of_the_one_before(stage: Stage) -> None:
    """The new one has as many records as this process has read of the one before."""
    more = {"ledgerTopic": f"ledger-{uuid.uuid4().hex}"}
    stage.save(1, "a", **more)
    stage.save(1, "is there", **more)  # reads also what the first one has removed
    with Admin(stage.bootstrap) as admin, Consumer(stage.bootstrap) as consumer:
        place = (more["ledgerTopic"], 0)
        (end,) = consumer.end_offsets([place]).values()
        admin.delete_topics([more["ledgerTopic"]])
        with another_process(stage.options(**more)) as door:
            door.ledger.refresh()  # creates it
            door.ledger.write(*(Entry("claim", "other", f"r{each}") for each in range(end)))
    stage.save(1, "a again", **more)
    assert stage.visible() == ["a", "a again"]


def test_a_ledger_that_was_deleted_is_created_again(stage: Stage) -> None:
    settings = {"kafka.default.api.timeout.ms": "3000"}  # how long the process looks for it
    more = {"ledgerTopic": f"ledger-{uuid.uuid4().hex}", **settings}
    stage.save(1, "a", **more)
    with Admin(stage.bootstrap) as admin:
        admin.delete_topics([more["ledgerTopic"]])
    stage.save(2, "b", **more)
    assert stage.visible() == ["a", "b"]


# ------------------------------------------------------------------------- names and numbers


def test_two_outputs_of_one_name_and_number_are_two_writes(
    stage: Stage, create_topic: Callable[..., str]
) -> None:
    """``foreachBatch`` gives the batch's number to each of its outputs."""
    other = Stage(stage.bootstrap, create_topic())
    other.write = stage.write
    stage.save(1, "a")
    other.save(1, "b")
    other.save(1, "b")
    assert (stage.visible(), other.visible()) == (["a"], ["b"])


def test_a_copied_checkpoint_writes_into_another_topic(
    stage: Stage, create_topic: Callable[..., str]
) -> None:
    other = Stage(stage.bootstrap, create_topic())
    other.write = stage.write
    stage.commit(stage.task("r1", 7, "blue"))
    other.commit(other.task("r2", 7, "green"))
    assert (stage.visible(), other.visible()) == (["blue"], ["green"])


def test_a_topic_that_was_made_again_is_written_again(stage: Stage) -> None:
    stage.save(1, "a")
    with Admin(stage.bootstrap) as admin:
        admin.delete_topics([stage.topic])
        admin.create_topics([NewTopic(stage.topic, 1, 3)])
    stage.save(1, "a")
    assert stage.visible() == ["a"]


def test_two_outputs_of_one_name_whose_rows_name_topics_are_refused(
    stage: Stage, create_topic: Callable[..., str]
) -> None:
    """The name says nothing of the topics then, and a decided batch would be taken for written."""
    schema = StructType().add("value", StringType()).add("topic", StringType())
    options = SinkOptions.parse({"bootstrap.servers": stage.bootstrap})
    other = create_topic()

    def save(topic: str) -> None:
        sink = ExactlyOnce(options, RowShape.of(schema, ""))
        target = Target(stage.write, uuid.uuid4().hex, 1)
        batch = pa.record_batch({"value": ["a"], "topic": [topic]})
        sink.commit([sink.run_task(target, Attempt(0, 0), iter([batch]))], target)

    save(stage.topic)
    save(stage.topic)
    with pytest.raises(WriteError, match=f"was written to {stage.topic} before, so its rows for"):
        save(other)
    assert stage.visible() == ["a"]


def test_each_number_is_written_once_in_any_order(stage: Stage) -> None:
    stage.save(1, "one")
    stage.save(5, "five")
    stage.save(1, "one again")
    stage.save(5, "five again")
    stage.save(3, "three")
    assert stage.visible() == ["one", "five", "three"]


def test_writes_with_names_leave_a_bounded_ledger(stage: Stage) -> None:
    ledger_topic = f"ledger-{uuid.uuid4().hex}"

    def left() -> int:
        options = stage.options(ledgerTopic=ledger_topic)
        with another_process(options) as door:
            door.ledger.refresh()
            return door.ledger.size

    stage.save(0, "0", ledgerTopic=ledger_topic)
    first = left()
    for version in range(1, 4):
        stage.save(version, str(version), ledgerTopic=ledger_topic)
    assert left() == first
    assert stage.visible() == ["0", "1", "2", "3"]


def test_a_number_that_has_lost_its_rows_does_not_stop_the_next_one(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    done = stage.task("r1", 1, "a")
    assert done.prepared is not None
    options = stage.options()
    with another_process(options) as door:
        door.ledger.write(Entry("commit", *named(done), (done.prepared,)))
        door.admin.fence_producer(done.prepared.transactional_id)
    stage.commit(stage.task("r2", 2, "b"))
    assert "rows of batch 1 are missing" in caplog.text
    assert stage.visible() == ["b"]


def test_an_abort_of_a_write_without_its_topic_has_nothing_to_do(stage: Stage) -> None:
    options = stage.options(**{"kafka.max.block.ms": "60000"})
    sink = ExactlyOnce(options, RowShape.of(VALUES, "no-such"))
    began = time.monotonic()
    sink.abort(Target(stage.write, "r1", 0))
    assert time.monotonic() - began < 30


def test_a_finished_write_leaves_no_transactional_ids(stage: Stage) -> None:
    """Each attempt has an id of its own, so coordinators would know more and more of them."""
    stage.save(0, "a")
    stage.task("r1", 1, "b", attempt=1)  # the driver does not hear of this copy
    stage.commit(stage.task("r1", 1, "b"))
    with Admin(stage.bootstrap) as admin:
        ids = [each.transactional_id for each in admin.list_transactions()]
    assert [name for name in ids if stage.write in name] == []
    assert stage.visible() == ["a", "b"]


def test_a_number_whose_driver_died_after_its_decision_is_finished_with_the_next(
    stage: Stage,
) -> None:
    done = stage.task("r1", 1, "a")
    assert done.prepared is not None
    options = stage.options()
    with another_process(options) as door:
        door.ledger.write(Entry("commit", *named(done), (done.prepared,)))
    stage.commit(stage.task("r2", 2, "b"))
    assert stage.visible() == ["a", "b"]


# ------------------------------------------------------------------------- transactional ids


def test_copies_of_a_task_have_ids_of_their_own(stage: Stage) -> None:
    """Spark numbers attempts over all tasks of a stage. Attempts of one task may be far apart."""
    first = stage.task("r1", 0, "row", attempt=3)
    late = stage.task("r1", 0, "row", attempt=3 + 256)
    assert first.prepared is not None
    assert late.prepared is not None
    assert first.prepared.transactional_id != late.prepared.transactional_id
    stage.commit(first)
    assert stage.visible() == ["row"]


def test_a_transaction_that_somebody_has_ended_is_not_decided(stage: Stage) -> None:
    done = stage.task("r1", 0, "a")
    assert done.prepared is not None
    with Admin(stage.bootstrap) as admin:
        admin.fence_producer(done.prepared.transactional_id)
    with pytest.raises(WriteError, match="was ended before the decision by somebody else"):
        stage.commit(done)
    stage.commit(stage.task("r2", 0, "a"))
    assert stage.visible() == ["a"]


@pytest.mark.parametrize("begins_another", [False, True])
def test_rows_that_are_lost_after_their_decision_are_reported(
    stage: Stage, begins_another: bool
) -> None:
    done = stage.task("r1", 0, "a")
    assert done.prepared is not None
    options, name = stage.options(), done.prepared.transactional_id
    with another_process(options) as door:
        door.ledger.write(Entry("commit", *named(done), (done.prepared,)))
        door.admin.fence_producer(name)
    producer = Producer(
        stage.bootstrap, transactional_id=name, transaction_two_phase_commit_enable=True
    )
    if begins_another:
        producer.begin_transaction()
        producer.send(stage.topic, b"other").result()
    with pytest.raises(LostTransactionError, match="rows of batch 0 are missing"):
        stage.commit(stage.task("r2", 0, "a"))
    producer.abort()


def test_a_task_without_rows_prepares_nothing(stage: Stage) -> None:
    empty = stage.task("r1", 0)
    assert (empty.prepared, empty.is_decided) == (None, False)
    stage.commit(empty)
    assert stage.visible() == []


@pytest.mark.skipif(not HAS_STREAMS, reason="streams need PySpark 4.2")
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
