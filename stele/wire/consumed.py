"""The records of a batch as a consumer hands them out."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from stele.ids import TopicPartition
from stele.records import ConsumerRecord, TimestampType
from stele.wire import native
from stele.wire.batch import BatchHeader, body_of, check_ends
from stele.wire.record import decode_records
from stele.world import Buffer

_make: Final[Any] = tuple.__new__  # the named call costs twice as much


class Source(NamedTuple):
    """What all records of a batch have in common."""

    topic: str
    partition: int
    timestamp_type: TimestampType
    leader_epoch: int


def consumer_records(
    batch: Buffer,
    position: int,
    header: BatchHeader,
    partition: TopicPartition,
    *,
    verify_crc: bool = True,
) -> list[ConsumerRecord]:
    """As ``stele.wire.batch.decode``, for the batch of a partition at ``position``."""
    is_append_time = header.is_log_append_time
    records = decode_consumer_records(
        body_of(batch, position, header, verify_crc=verify_crc),
        header.record_count,
        base_offset=header.base_offset,
        base_timestamp_ms=header.base_timestamp_ms,
        append_time_ms=header.max_timestamp_ms if is_append_time else None,
        source=Source(*partition, TimestampType(is_append_time), header.leader_epoch),
    )
    if records:
        check_ends(header, records[0].offset, records[-1].offset)
    return records


def decode_consumer_records(
    data: bytes,
    count: int,
    *,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int | None,
    source: Source,
) -> list[ConsumerRecord]:
    """As ``stele.wire.record.decode_records``."""
    if native.NATIVE is not None:
        sound = native.NATIVE.decode_consumer_records(
            data, count, base_offset, base_timestamp_ms, append_time_ms, ConsumerRecord, source
        )
        if sound is not None:
            return sound
    topic, partition, kind, epoch = source
    decoded = decode_records(
        data,
        count,
        base_offset=base_offset,
        base_timestamp_ms=base_timestamp_ms,
        append_time_ms=append_time_ms,
    )
    return [
        _make(
            ConsumerRecord,
            (topic, partition, offset, timestamp_ms, kind, key, value, headers, epoch),
        )
        for offset, timestamp_ms, key, value, headers in decoded
    ]
