"""The work of a sink's task on a batch of rows: it makes record batches of its columns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from stele.column_encoder import encode_columns
from stele.spark.rows import RowShape

if TYPE_CHECKING:
    from stele import Producer


def write(producer: Producer, shape: RowShape, batch: pa.RecordBatch) -> None:
    """Hand the rows to the producer. The rows of a partition keep their order, but those that
    neither a key nor a column sends to a partition go anywhere, in batches of their own.

    Raises RowError, and what ``Producer.send`` raises.
    """
    for rows in shape.by_topic(batch):
        count = len(producer.partitions_for(rows.topic))
        encoded = encode_columns(
            rows.columns,
            rows.chosen(count),
            timestamp_ms=time.time_ns() // 1_000_000,
            batch_bytes=producer.batch_size,
        )
        for partition, records in encoded:
            producer.send_encoded(rows.topic, records, None if partition < 0 else partition)
