"""The PySpark data source ``stele``: batch reads of topics.

The driver's process turns the options into offset ranges. Each Spark task reads one range with a
consumer of its own and passes it to Spark as Arrow batches. The client is imported only where it
runs: Spark forks its Python workers, and gRPC must not be loaded before a fork.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from stele.spark.offsets import EARLIEST, LATEST, OffsetRange, SourceOptions, split

if TYPE_CHECKING:
    from stele import Consumer
    from stele.ids import TopicPartition
    from stele.records import ConsumerRecord

SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP, timestampType INT"
)
_HEADERS = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
_ROWS_PER_BATCH = 10_000
_SILENCE_MS = 60_000


class DataLossError(Exception):
    """Records that the query should read no longer exist."""


class NotBuiltError(Exception):
    """The query needs something that is not implemented."""


class SteleDataSource(DataSource):
    """``session.read.format("stele")``. The options are those of Spark's Kafka source, see
    ``offsets``.

    Spark makes an object for each kind of use and asks it for what it needs. So options are checked
    only when something is asked for: a write has other options than a read.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "stele"

    def schema(self) -> str:
        options = SourceOptions.parse(self._given)
        return SCHEMA + (_HEADERS if options.include_headers else "")

    def reader(self, schema: StructType) -> SteleReader:
        return SteleReader(SourceOptions.parse(self._given))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _NoStreams()

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise NotBuiltError(_NO_WRITES)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802
        raise NotBuiltError(_NO_WRITES)


class _NoStreams(DataSourceStreamReader):
    """Refuses when Spark asks where the stream begins: an earlier error would be hidden behind one
    of Spark's own."""

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        raise NotBuiltError(
            'format "stele" does not read streams yet (readStream): read a batch with '
            "session.read, and begin the next one at the offsets where it ended"
        )

    def read(self, partition: InputPartition) -> NoReturn:
        raise AssertionError("Spark reads no stream that has no beginning")


_NO_WRITES = (
    'format "stele" does not write yet (write, writeStream): write with stele.Producer in '
    "foreachPartition"
)


class RangePartition(InputPartition):
    """The range that one Spark task reads."""

    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(range_)
        self.range = range_


class SteleReader(DataSourceReader):
    """One batch read. The offsets are fixed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with _consumer(options) as consumer:
            names = [
                (topic, number)
                for topic in options.topics
                for number in consumer.partitions_for(topic)
            ]
            beginnings = consumer.beginning_offsets(names)
            ends = consumer.end_offsets(names)
        ranges = [
            OffsetRange(
                *name,
                _resolved(options.start.of(*name), beginnings, ends, name),
                _resolved(options.end.of(*name), beginnings, ends, name),
            )
            for name in beginnings
        ]
        for each in ranges:
            self._check_held(each, beginnings, ends)
        pieces = split(ranges, options.min_partitions) or ranges[:1]  # Spark needs at least one
        return [RangePartition(each) for each in pieces]

    def _check_held(
        self,
        range_: OffsetRange,
        beginnings: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> None:
        from stele.ids import TopicPartition

        name = TopicPartition(range_.topic, range_.partition)
        low, high = beginnings[name], ends[name]
        held = low <= range_.start <= high and range_.end <= high
        if not held and self._options.fail_on_data_loss:
            raise DataLossError(
                f"{name}: offsets {range_.start} to {range_.end} are wanted, but "
                f"the log has {low} to {high}; failOnDataLoss=false reads those that exist"
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        from stele.columns import SCHEMA as COLUMNS  # after the fork, like the client
        from stele.columns import record_batch

        schema = COLUMNS if self._options.include_headers else COLUMNS.remove(len(COLUMNS) - 1)
        for records in _records(self._options, partition.range):
            yield record_batch(records, schema)


def register(session: SparkSession) -> None:
    """Make ``format("stele")`` available in a session."""
    session.dataSource.register(SteleDataSource)


def _consumer(options: SourceOptions) -> Consumer:
    from stele import Consumer

    return Consumer(
        options.bootstrap_servers,
        auto_offset_reset="none" if options.fail_on_data_loss else "earliest",
        default_api_timeout_ms=options.default_api_timeout_ms,
        max_partition_fetch_bytes=8 * 1024 * 1024,
    )


def _resolved(
    offset: int,
    beginnings: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    name: TopicPartition,
) -> int:
    return {EARLIEST: beginnings[name], LATEST: ends[name]}.get(offset, offset)


def _records(options: SourceOptions, range_: OffsetRange) -> Iterator[list[ConsumerRecord]]:
    """The records of a range in order, some thousands at a time."""
    with _consumer(options) as consumer:
        consumer.assign([(range_.topic, range_.partition)])
        consumer.seek(range_.topic, range_.partition, range_.start)
        while consumer.position(range_.topic, range_.partition) < range_.end:
            records: list[ConsumerRecord] = consumer.poll(_ROWS_PER_BATCH, timeout_ms=_SILENCE_MS)
            if not records:
                raise TimeoutError(
                    f"{range_.topic}-{range_.partition}: nothing came for "
                    f"{_SILENCE_MS // 1000} s, {range_.end} not reached"
                )
            if records[-1].offset >= range_.end:
                records = [record for record in records if record.offset < range_.end]
            if records:
                yield records
