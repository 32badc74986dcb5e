"""Runs: records that a producer accepts together.

One record after the other costs some microseconds, most of them for calls. A run is checked, hashed
and encoded at once. It has plain records only: what is not plain goes the way of single records,
which converts it, waits for it or refuses it.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple, TypeGuard

from stele.producer.arguments import LATEST_TIME_MS
from stele.producer.partitioner import LONG_KEY_BYTES, partition_of
from stele.records import ProducerRecord
from stele.topic_names import is_encodable
from stele.wire import native
from stele.wire.record import OutgoingRecord, record_size_bound

FIELDS: Final = len(ProducerRecord._fields)


class Run(NamedTuple):
    """Records of one topic that follow each other."""

    record_count: int
    size: int
    """The sum of their bounds, as ``buffer_memory`` counts them."""
    keyless_size: int
    """The part of ``size`` that records with neither a key nor a partition have."""
    by_partition: dict[int, list[OutgoingRecord]]
    """In the order of their first records. Those of a partition are in their order."""


def topic_of(record: object, field_count: int) -> str | None:
    """The topic of a record that a run may begin with. None: it is not plain."""
    if not isinstance(record, tuple) or len(record) != field_count or type(record[0]) is not str:
        return None
    return record[0]


def divide(
    records: list[OutgoingRecord],
    start: int,
    topic: str,
    *,
    field_count: int = FIELDS,
    partition_count: int,
    room_bytes: int,
    largest_bytes: int,
    keyless_partition: int | None,
    keyless_bytes: int,
) -> Run:
    """The run that begins at ``start``. It ends before the first record that is not plain, has
    another topic, or for which there is no room.

    ``field_count``: a record has so many. Those after the ones of ProducerRecord are not looked at.
    ``keyless_partition``: the partition of records with neither a key nor a partition, until
    ``keyless_bytes`` are used up. None: such a record ends the run, too.
    """
    if native.NATIVE is not None:
        return Run._make(
            native.NATIVE.divide(
                records,
                start,
                topic,
                field_count,
                partition_count,
                room_bytes,
                largest_bytes,
                keyless_partition,
                keyless_bytes,
                LONG_KEY_BYTES,
            )
        )
    count = size = keyless_size = 0
    by_partition: dict[int, list[OutgoingRecord]] = {}
    for record in islice(records, start, None):
        if topic_of(record, field_count) != topic or not _is_plain(record, partition_count):
            break
        _, value, key, headers, _, partition, *_ = record
        bound = record_size_bound(key, value, headers)
        if bound > largest_bytes or size + bound > room_bytes:
            break
        if partition is None and key is not None:
            partition = partition_of(key, partition_count)
        elif partition is None:
            if keyless_partition is None or keyless_size >= keyless_bytes:
                break
            partition = keyless_partition
            keyless_size += bound
        size += bound
        count += 1
        by_partition.setdefault(partition, []).append(record)
    return Run(count, size, keyless_size, by_partition)


def _is_plain(record: OutgoingRecord, partition_count: int) -> bool:
    """Whether a batch can take the record as it is. Its destination needs no wait."""
    _, value, key, headers, time_ms, partition, *_ = record
    if not (_is_bytes_or_none(value) and _is_bytes_or_none(key)):
        return False
    if time_ms is not None and not (type(time_ms) is int and 0 <= time_ms <= LATEST_TIME_MS):
        return False
    if partition is None:
        if key is not None and len(key) > LONG_KEY_BYTES:
            return False
    elif not (type(partition) is int and 0 <= partition < partition_count):
        return False
    if type(headers) is not tuple and type(headers) is not list:
        return False
    return all(map(_is_plain_header, headers))


def _is_plain_header(header: object) -> bool:
    if type(header) is not tuple or len(header) != 2:
        return False
    name, value = header
    return type(name) is str and is_encodable(name) and _is_bytes_or_none(value)


def _is_bytes_or_none(data: object) -> TypeGuard[bytes | None]:
    return data is None or type(data) is bytes
