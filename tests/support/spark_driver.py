"""A driver that does to an exactly-once sink what Spark does, so that it can be killed quickly.

It has a checkpoint as Spark's: a batch is done when its number is in the file. Each batch has two
tasks, and one attempt in three fails after its rows and runs again. Started as a process:
``python -m tests.support.spark_driver SERVERS TOPIC WRITE CHECKPOINT BATCHES SEED``.
"""

from __future__ import annotations

import random
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from stele.spark.exactly_once_sink import Attempt, ExactlyOnce, Target, TaskResult
from stele.spark.options import SinkOptions
from stele.spark.rows import RowShape

TASKS, ROWS = 2, 20


class KilledError(Exception):
    """A task dies."""


def values(batch: int, task: int) -> list[str]:
    return [f"{batch}-{task}-{row}" for row in range(ROWS)]


def everything(batches: int) -> list[str]:
    return [v for batch in range(batches) for task in range(TASKS) for v in values(batch, task)]


def _rows(batch: int, task: int, dies: bool) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"value": values(batch, task)})
    if dies:
        raise KilledError


def main(arguments: list[str]) -> None:
    servers, topic, write, file, batches, seed = arguments
    checkpoint, rng, run = Path(file), random.Random(int(seed)), uuid.uuid4().hex
    options = SinkOptions.parse(
        {"bootstrap.servers": servers, "topic": topic, "ledgerTopic": f"{topic}-ledger"}
    )
    schema = StructType().add("value", StringType())
    attempts = 0
    for batch in range(int(checkpoint.read_text()), int(batches)):
        sink = ExactlyOnce(options, RowShape.of(schema, topic))
        target = Target(write, run, batch)
        results: list[TaskResult] = []
        for task in range(TASKS):
            while len(results) == task:
                attempts += 1
                try:
                    rows = _rows(batch, task, dies=rng.random() < 1 / 3)
                    results.append(sink.run_task(target, Attempt(task, attempts), rows))
                except KilledError:
                    pass
        sink.commit(results, target)
        done = checkpoint.with_suffix(".next")
        done.write_text(str(batch + 1))
        done.replace(checkpoint)


if __name__ == "__main__":
    main(sys.argv[1:])
