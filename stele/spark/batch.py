"""One batch read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from stele.ids import TopicPartition
from stele.spark.cluster import SAMPLED_FROM, Cluster, Topics
from stele.spark.filters import Restriction, push
from stele.spark.offsets import OffsetRange, planned, split
from stele.spark.options import SourceOptions
from stele.spark.reading import read_range


class RangePartition(InputPartition):
    """The range that one Spark task reads."""

    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(range_)
        self.range = range_


class SteleReader(DataSourceReader):
    """One batch read. The offsets are fixed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._restriction = Restriction()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        pushed = push(filters)
        self._restriction = pushed.restriction
        return pushed.left

    def partitions(self) -> Sequence[InputPartition]:
        with Cluster(self._options) as cluster:
            topics = cluster.topics()
            ranges = planned(self._options, cluster.logs_of(topics))
            wanted = self._restricted(cluster, ranges)
            pieces = self._split(cluster, wanted)
        return [RangePartition(each) for each in pieces or [_nothing(topics)]]

    def _restricted(self, cluster: Cluster, ranges: list[OffsetRange]) -> list[OffsetRange]:
        restriction = self._restriction
        ranges = [each for each in ranges if restriction.has(each.name)]
        firsts: dict[TopicPartition, int | None] = {}
        if (time_ms := restriction.first_time_ms) is not None:
            times = [(each.name, time_ms) for each in ranges]
            found = cluster.logs([each.name for each in ranges], times).times
            firsts = {name: offset for (name, _), offset in found.items()}
            ranges = [each for each in ranges if firsts[each.name] is not None]
        left = [restriction.apply(each, firsts.get(each.name)) for each in ranges]
        return [each for each in left if each is not None]

    def _split(self, cluster: Cluster, ranges: list[OffsetRange]) -> list[OffsetRange]:
        options = self._options
        large = {each.name: each.start for each in ranges if each.records >= SAMPLED_FROM}
        can_sample = options.max_bytes_per_partition and large
        return split(
            ranges,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
            max_bytes=options.max_bytes_per_partition,
            record_bytes=cluster.record_bytes(large) if can_sample else None,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read_range(self._options, partition.range)


def _nothing(topics: Topics) -> OffsetRange:
    """Spark needs one partition at least."""
    name = topics.partitions[0] if topics.partitions else TopicPartition("", 0)
    return OffsetRange(*name, 0, 0)
