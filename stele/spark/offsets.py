"""Makes the offset ranges of Spark's tasks from the options and from what the logs hold. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stele.ids import TopicPartition
from stele.spark.option_error import OptionError
from stele.spark.options import EARLIEST, LATEST, AtTime, Bound, SourceOptions


class DataLossError(Exception):
    """Records that the query should read no longer exist."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets that one task reads: from ``start`` up to, but not including, ``end``."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes = b""
    """The topic that had these offsets when they were planned. Empty: not known."""

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def records(self) -> int:
        """At most so many: compaction and transactions leave gaps."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Logs:
    """What the logs of some partitions hold now."""

    beginnings: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    """The high watermarks, or the last stable offsets for a query that reads only committed
    records."""
    times: Mapping[tuple[TopicPartition, int], int | None] = field(default_factory=dict)
    """For each partition and time in ms the first offset at or after it; None if there is no
    record.
    """
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)


def times_wanted(
    bounds: Iterable[Bound], partitions: Sequence[TopicPartition]
) -> list[tuple[TopicPartition, int]]:
    """The times that ``planned`` needs in ``Logs.times``."""
    places = [(name, bound.of(name)) for bound in bounds for name in partitions]
    wanted = [(name, place.timestamp_ms) for name, place in places if isinstance(place, AtTime)]
    return list(dict.fromkeys(wanted))


def check_names(bound: Bound, partitions: Iterable[TopicPartition], option: str) -> None:
    """Raises OptionError if the bound names a partition that the query does not read."""
    strange = sorted(set(bound.places) - set(partitions))
    if strange:
        raise OptionError(
            f'option "{option}" names {", ".join(map(str, strange))}, which the query does not read'
        )


def starts(options: SourceOptions, logs: Logs) -> dict[TopicPartition, int]:
    """Where reading begins in each partition. Raises OptionError, DataLossError."""
    check_names(options.start, logs.beginnings, "startingOffsets")
    found = {name: _start(name, options, logs) for name in logs.beginnings}
    for name, offset in found.items():
        low, high = logs.beginnings[name], logs.ends[name]
        if not low <= offset <= high:
            if options.fail_on_data_loss:
                raise missing(name, f"offset {offset} is wanted", low, high)
            found[name] = min(max(offset, low), high)
    return found


def _start(name: TopicPartition, options: SourceOptions, logs: Logs) -> int:
    place = options.start.of(name)
    if not isinstance(place, AtTime):
        return {EARLIEST: logs.beginnings[name], LATEST: logs.ends[name]}.get(place, place)
    offset = logs.times[name, place.timestamp_ms]
    if offset is None and options.strategy == "error":
        raise OptionError(
            f"{name} has no record at or after {place.timestamp_ms} ms, where reading should "
            "begin; startingOffsetsByTimestampStrategy=latest begins at its end"
        )
    return logs.ends[name] if offset is None else min(offset, logs.ends[name])


def planned(options: SourceOptions, logs: Logs) -> list[OffsetRange]:
    """The range of each partition for a batch read. Raises OptionError, DataLossError."""
    check_names(options.end, logs.beginnings, "endingOffsets")
    begins = starts(options, logs)
    ranges = []
    for name, start in begins.items():
        end = _end(name, options, logs)
        low, high = logs.beginnings[name], logs.ends[name]
        if not low <= end <= high:
            if options.fail_on_data_loss:
                raise missing(name, f"offsets up to {end} are wanted", low, high)
            end = min(max(end, low), high)
        if start > end:
            raise OptionError(
                f"{name}: reading would begin at offset {start} and end before it, at {end}: see "
                "the options startingOffsets and endingOffsets, or their times"
            )
        ranges.append(OffsetRange(*name, start, end, logs.topic_ids.get(name.topic, b"")))
    return ranges


def _end(name: TopicPartition, options: SourceOptions, logs: Logs) -> int:
    place, high = options.end.of(name), logs.ends[name]
    if not isinstance(place, AtTime):
        return high if place == LATEST else place
    found = logs.times[name, place.timestamp_ms]
    return high if found is None else min(found, high)


def missing(name: TopicPartition, wanted: str, low: int, high: int) -> DataLossError:
    return DataLossError(
        f"{name}: {wanted}, but the log has {low} to {high}; failOnDataLoss=false reads what exists"
    )


def split(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int = 0,
    max_records: int = 0,
    max_bytes: int = 0,
    record_bytes: Mapping[TopicPartition, float] | None = None,
) -> list[OffsetRange]:
    """Divide long ranges into equal pieces. Empty ranges are left out.

    No piece has more than ``max_records`` offsets or, by the estimate ``record_bytes``, more than
    ``max_bytes`` (0: no limit). If there are fewer than ``min_partitions`` pieces then, ranges have
    pieces in proportion to their share of the records, as in Spark's Kafka source.
    """
    whole = [each for each in ranges if each.records > 0]
    sizes = record_bytes or {}
    counts = []
    for each in whole:
        count = 1
        if max_records:
            count = max(count, -(-each.records // max_records))
        if max_bytes and each.name in sizes:
            count = max(count, math.ceil(each.records * sizes[each.name] / max_bytes))
        counts.append(min(count, each.records))
    if sum(counts) < min_partitions:
        total = sum(each.records for each in whole)
        shares = [round(each.records / total * min_partitions) for each in whole]
        counts = [
            min(each.records, max(count, share))
            for each, count, share in zip(whole, counts, shares, strict=True)
        ]
    return [
        OffsetRange(each.topic, each.partition, low, high, each.topic_id)
        for each, count in zip(whole, counts, strict=True)
        for low, high in itertools.pairwise(
            each.start + each.records * number // count for number in range(count + 1)
        )
    ]
