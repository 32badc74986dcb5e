"""The log of a job says how long brokers let it wait because it is above a quota."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from stele import Admin
from stele.admin.client_quotas import QuotaAlteration
from stele.spark.batch import SteleReader
from stele.spark.exactly_once_sink import Attempt, ExactlyOnce, Target
from stele.spark.options import SinkOptions, SourceOptions
from stele.spark.plain_sink import PlainStreamWriter, PlainWriter, Written
from stele.spark.rows import RowShape

pytestmark = pytest.mark.processes

VALUES = StructType().add("value", StringType())
RATE = 20_000.0
AT_ONCE = 2
"""Seconds' worth of a quota that a client may have at once, after it was silent."""


@pytest.fixture
def options(bootstrap: str, create_topic: Callable[..., str]) -> Iterator[dict[str, str]]:
    """Of a job whose client id has quotas."""
    client_id = uuid.uuid4().hex
    keys = ("producer_byte_rate", "consumer_byte_rate")
    with Admin(bootstrap) as admin:
        admin.alter_client_quotas(
            [QuotaAlteration({"client-id": client_id}, dict.fromkeys(keys, RATE))]
        )
        yield {
            "bootstrap.servers": bootstrap,
            "topic": create_topic(),
            "kafka.client.id": client_id,
        }
        admin.alter_client_quotas([QuotaAlteration({"client-id": client_id}, dict.fromkeys(keys))])


def rows_above_the_quota() -> Iterator[pa.RecordBatch]:
    """They take some two seconds longer than a client may have at once."""
    one_second = int(RATE)
    for _ in range(AT_ONCE + 2):
        yield pa.record_batch({"value": [os.urandom(one_second // 2).hex()]})


def said(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = [each for each in caplog.records if "above their quota" in each.getMessage()]
    assert record.levelno == logging.WARNING
    return record.getMessage()


def test_a_stream_says_it_of_each_micro_batch(
    options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    sink = SinkOptions.parse({**options, "exactlyOnce": "false"})
    writer = PlainStreamWriter(sink, RowShape.of(VALUES, sink.topic))
    result = writer.write(rows_above_the_quota())
    messages: list[WriterCommitMessage | None] = [result, None, Written(3, 1.5)]
    writer.commit(messages, 7)
    wait_s = result.throttled_s + 1.5
    assert f"micro-batch 7: brokers let its clients wait {wait_s:.1f} s" in said(caplog)
    assert "producer_byte_rate" in said(caplog)
    caplog.clear()
    writer.commit([Written(3)], 8)
    assert not caplog.records


def test_a_batch_write_says_it(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    sink = SinkOptions.parse({**options, "exactlyOnce": "false"})
    writer = PlainWriter(sink, RowShape.of(VALUES, sink.topic))
    writer.commit([writer.write(rows_above_the_quota())])
    assert "a write: brokers let its clients wait " in said(caplog)


def test_an_exactly_once_write_says_it(
    options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    sink = SinkOptions.parse(options)
    target = Target(uuid.uuid4().hex, "run", 7)
    exactly_once = ExactlyOnce(sink, RowShape.of(VALUES, sink.topic))
    result = exactly_once.run_task(target, Attempt(0, 0), rows_above_the_quota())
    exactly_once.commit([result], target)
    assert said(caplog).startswith(f"batch 7 of {target.write}: brokers let its clients wait ")


def test_a_task_that_reads_says_it(
    options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    unbounded = {key: value for key, value in options.items() if key != "kafka.client.id"}
    sink = SinkOptions.parse({**unbounded, "exactlyOnce": "false"})
    PlainWriter(sink, RowShape.of(VALUES, sink.topic)).write(rows_above_the_quota())
    topic = options.pop("topic")
    reader = SteleReader(SourceOptions.parse({**options, "subscribe": topic}))
    (task,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(task)) == AT_ONCE + 2
    assert said(caplog).startswith(f"{topic}-0 from offset 0 to {AT_ONCE + 2}: brokers let its ")
    assert "consumer_byte_rate" in said(caplog)
