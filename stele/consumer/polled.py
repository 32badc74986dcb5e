"""The records of a poll."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stele.records import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow as pa


class ConsumerRecords(list[ConsumerRecord]):
    """What a poll returns: a list of ConsumerRecord that can become columns."""

    def to_arrow(self) -> pa.Table:
        """The records as a table of Apache Arrow with the columns of Spark's Kafka source: key,
        value, topic, partition, offset, timestamp, timestampType, headers.

        Raises ImportError without the extra ``arrow``.
        """
        import pyarrow as pa  # an extra

        from stele.columns import record_batch

        return pa.Table.from_batches([record_batch(self)])

    def to_pandas(self) -> Any:
        """The same as a pandas ``DataFrame``. Raises ImportError without the extra ``pandas``."""
        return self.to_arrow().to_pandas()
