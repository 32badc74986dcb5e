"""Writes without transactions: each task writes with an idempotent producer of its own.

A task that Spark repeats writes its rows again, so a row may be there twice, and rows of a write
that fails stay. ``exactly_once_sink`` has neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from stele.spark.options import SinkOptions
from stele.spark.rows import RowShape
from stele.spark.throttles import say_of_tasks
from stele.spark.worker_garbage import loaded_modules
from stele.spark.writing import write

if TYPE_CHECKING:
    from stele import Producer


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The result of a task's write."""

    rows: int
    throttled_s: float = 0.0
    """How long brokers let the task's producer wait, because it was above a quota."""


def write_rows(options: SinkOptions, shape: RowShape, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of a task. All of them are acknowledged at the end, or it raises."""
    rows = 0
    with plain_producer(options) as producer:
        for batch in batches:
            write(producer, shape, batch)
            rows += batch.num_rows
        producer.flush()
        written = Written(rows, producer.throttled_s)
    loaded_modules.leave_out()
    return written


def plain_producer(options: SinkOptions) -> Producer:
    from stele import Producer  # loaded where it runs: Spark forks its workers

    return Producer(options.bootstrap_servers, **options.client)


class PlainWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: SinkOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, self._shape, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        say_of_tasks("a write", _written(messages))


class PlainStreamWriter(DataSourceStreamArrowWriter):
    """The batches of a stream."""

    def __init__(self, options: SinkOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, self._shape, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        say_of_tasks(f"micro-batch {batchId}", _written(messages))


def _written(messages: Iterable[WriterCommitMessage | None]) -> Iterator[Written]:
    return (each for each in messages if isinstance(each, Written))
