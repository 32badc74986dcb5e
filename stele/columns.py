"""Records as columns of Apache Arrow. It needs the extra ``arrow``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from stele.records import ConsumerRecord

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The columns of Spark's Kafka source, with their names."""


def record_batch(records: Sequence[ConsumerRecord], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """The records as rows. ``schema`` may leave the headers out. A record without headers has null
    there."""
    columns: list[Any] = [
        [record.key for record in records],
        [record.value for record in records],
        [record.topic for record in records],
        [record.partition for record in records],
        [record.offset for record in records],
        [record.timestamp_ms * 1000 for record in records],
        [int(record.timestamp_type) for record in records],
    ]
    if len(schema) > len(columns):
        columns.append(
            [[{"key": k, "value": v} for k, v in record.headers] or None for record in records]
        )
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)
