"""The records of a poll."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from stele.consumer.positions import RawBatch
from stele.errors import ConfigError
from stele.ids import TopicPartition
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


class PolledRows(NamedTuple):
    """Records of one partition as rows, and the position before the poll that returned them."""

    partition: TopicPartition
    position: int
    rows: pa.RecordBatch


RowsOf = Callable[[list[RawBatch]], "Iterator[pa.RecordBatch]"]


def rows_maker(*, include_headers: bool, check_crcs: bool) -> RowsOf:
    """Makes rows of whole batches of one partition. Raises ConfigError without pyarrow or NumPy."""
    try:
        from stele.column_decoder import columns_of  # an extra
    except ImportError as error:
        raise ConfigError(
            f"poll_arrow needs pyarrow and NumPy, and there is {error}: "
            "pip install 'stele-log-client[arrow]', or use poll"
        ) from error
    return partial(columns_of, include_headers=include_headers, check_crcs=check_crcs)


def table_of(polled: Sequence[PolledRows], *, include_headers: bool) -> pa.Table:
    """One table. It does not copy the rows."""
    import pyarrow as pa  # an extra

    from stele.column_decoder import schema_of

    schema = schema_of(include_headers=include_headers)
    return pa.Table.from_batches([each.rows for each in polled], schema=schema)
