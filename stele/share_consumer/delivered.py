"""The records that a leader has given, out of the batches of its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stele.errors import ApiError
from stele.ids import TopicPartition
from stele.records import ShareRecord, TimestampType
from stele.share_consumer.requests import Acquired
from stele.wire.batch import BatchError, BatchHeader, batches, decode
from stele.world import Buffer


class Delivered(NamedTuple):
    records: list[ShareRecord]
    unreadable: list[range]
    """Offsets of batches that cannot be decoded."""
    error: ApiError | None


def delivered(
    partition: TopicPartition, data: Buffer, acquired: Sequence[Acquired], *, check_crcs: bool
) -> Delivered:
    """A batch may hold records that others have. Only acquired ones are delivered."""
    found = Delivered([], [], None)
    for start, header in batches(data):
        ranges = [
            each
            for each in acquired
            if each.first <= header.last_offset and each.last >= header.base_offset
        ]
        if header.is_control or not ranges:
            continue
        try:
            found.records.extend(_records(partition, data, start, header, ranges, check_crcs))
        except BatchError as problem:
            error = ApiError(
                problem.code,
                f"records {header.base_offset} to {header.last_offset} of {partition} cannot be "
                f"read, and are released: {problem.message}",
            )
            found = found._replace(error=found.error or error)
            found.unreadable.append(range(header.base_offset, header.next_offset))
    return found


def _records(
    partition: TopicPartition,
    data: Buffer,
    start: int,
    header: BatchHeader,
    ranges: Sequence[Acquired],
    check_crcs: bool,
) -> Iterator[ShareRecord]:
    kind = TimestampType(header.is_log_append_time)
    at = 0
    for offset, timestamp_ms, key, value, headers in decode(data, start, verify_crc=check_crcs):
        while at < len(ranges) and ranges[at].last < offset:
            at += 1
        if at < len(ranges) and ranges[at].first <= offset:
            yield ShareRecord(
                partition.topic,
                partition.partition,
                offset,
                timestamp_ms,
                kind,
                key,
                value,
                headers,
                header.leader_epoch,
                ranges[at].delivery_count,
            )
