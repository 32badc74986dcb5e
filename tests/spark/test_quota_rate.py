"""Spark's own source for Kafka, which is Kafka's client in Java, gets its quota."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from stele import Admin, Producer
from stele.admin.client_quotas import QuotaAlteration
from tests.spark.conftest import NEEDS_JAVA
from tests.support.paced_clients import COUNT, RATE, REQUEST_BYTES, VALUE, Arrival, assert_paced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.processes,
    NEEDS_JAVA,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


ONE_BY_ONE = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "4096",
}
"""Spark hands each value over as it comes, in no larger batches and buffers."""

STARTED_S = 3.0
"""The first values wait until the task's Python has started, and come together then."""


def noted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """When values reach a task."""
    for batch in batches:
        sizes = [len(each) for each in batch.column("value").to_pylist()]
        yield pa.RecordBatch.from_pydict({"at_s": [time.monotonic()] * len(sizes), "size": sizes})


def test_a_job_gets_its_quota_and_does_not_fail(
    spark: SparkSession, kafka_source: None, bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic, client_id = create_topic(), uuid.uuid4().hex
    with Producer(bootstrap) as producer:
        for _ in range(COUNT):
            producer.send(topic, VALUE)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.client.id": client_id,
        "kafka.max.partition.fetch.bytes": str(REQUEST_BYTES),
        "subscribe": topic,
    }
    for key, value in ONE_BY_ONE.items():
        spark.conf.set(key, value)
    with Admin(bootstrap) as admin:
        entity: dict[str, str | None] = {"client-id": client_id}
        admin.alter_client_quotas([QuotaAlteration(entity, {"consumer_byte_rate": RATE})])
        try:
            read = spark.read.format("kafka").options(**options).load().select("value")
            rows = read.mapInArrow(noted, "at_s double, size long").collect()
            usages = [
                usage
                for of_broker in admin.explain_client_quotas("ANONYMOUS", client_id).values()
                for usage in of_broker
            ]
        finally:
            for key in ONE_BY_ONE:
                spark.conf.unset(key)
            admin.alter_client_quotas([QuotaAlteration(entity, {"consumer_byte_rate": None})])
    assert_paced([Arrival(row.at_s, row.size) for row in rows], [STARTED_S])
    assert any(each.throttles for each in usages)
