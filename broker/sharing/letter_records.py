"""Dead letters as records: what they are made of, and what they say (KIP-1191)."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from broker.replication.shared import SharedBatch
from broker.share.values import RecordState, StateBatch
from stele.wire.batch import BatchBuilder, decode
from stele.wire.record import Header, Record, record_size_bound

_READ_BYTES: Final = 1 << 20

_MESSAGES: Final = {
    RecordState.ARCHIVING: b"Offset delivery count exceeded the threshold.",
    RecordState.ARCHIVING_REJECTED: b"Offset rejected by client.",
}
"""Kafka's texts, since programs compare them."""

Ranges = Sequence[tuple[int, int]]
"""First and last offsets, ascending."""


class SourceLog(Protocol):
    """``broker.sharing.partition.SharedLog``."""

    @property
    def start_offset(self) -> int: ...

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool
    ) -> Sequence[SharedBatch]: ...


class Source(NamedTuple):
    """What a letter says of its record, apart from the offset."""

    group_id: str
    topic: str
    partition: int
    copies_record: bool
    """errors.deadletterqueue.copy.record.enable"""

    @property
    def header_bytes(self) -> int:
        """At least what a letter adds to its record."""
        return 300 + len(self.topic.encode()) + len(self.group_id.encode())


class Found(NamedTuple):
    """Records of the log."""

    records: dict[int, Record]
    """By offset."""
    end_offset: int
    """Every asked offset below is in ``records``, or the log has no record there."""


async def read_records(
    log: SourceLog, ranges: Ranges, most_bytes: float, header_bytes: int = 0
) -> Found:
    """The records at these offsets, as many as fit in ``most_bytes`` together with ``header_bytes``
    for each, and one at least. Raises ApiError as the log's ``read``, BatchError."""
    records: dict[int, Record] = {}
    size = 0
    for first, last in ranges:
        position = max(first, log.start_offset)
        while position <= last:
            batches = await log.read(position, _READ_BYTES, read_committed=False)
            if not batches:
                break
            for batch in batches:
                if batch.first > last:
                    break
                for record in _wanted(batch, position, last):
                    size += record_size_bound(record.key, record.value, record.headers)
                    size += header_bytes
                    if records and size > most_bytes:
                        return Found(records, record.offset)
                    records[record.offset] = record
                await asyncio.sleep(0)  # a batch may take long to decompress
            position = max(position, batches[-1].last + 1)
    return Found(records, ranges[-1][1] + 1 if ranges else 0)


def _wanted(batch: SharedBatch, first: int, last: int) -> Iterator[Record]:
    if batch.last >= first and batch.is_deliverable:
        yield from (each for each in decode(batch.data) if first <= each.offset <= last)


def with_records(due: Sequence[StateBatch], found: Found) -> list[StateBatch]:
    """The parts of ``due`` for which there are records."""
    parts: list[StateBatch] = []
    for batch in due:
        for offset in range(batch.first, min(batch.last + 1, found.end_offset)):
            if offset not in found.records:
                continue
            before = parts[-1] if parts else None
            if before is not None and (before.last + 1, before[2:]) == (offset, batch[2:]):
                parts[-1] = before._replace(last=offset)
            else:
                parts.append(batch._replace(first=offset, last=offset))
    return parts


def without_records(due: Sequence[StateBatch], found: Found) -> list[StateBatch]:
    """The offsets of ``due`` at which the log has no record. Compaction may have removed it."""
    return [
        batch._replace(first=offset, last=offset)
        for batch in due
        for offset in range(batch.first, min(batch.last + 1, found.end_offset))
        if offset not in found.records
    ]


def letter_batch(
    source: Source,
    ranges: Ranges,
    reasons: Sequence[StateBatch],
    records: Mapping[int, Record],
    *,
    producer_id: int,
    sequence: int,
    time_ms: int,
) -> bytearray:
    """One record batch with a letter for each offset of ``ranges``, whether its record is still
    there or not: a batch with other records would not be known as a duplicate.

    A letter has the present time. With its record's time, retention could delete it at once.
    ``reasons``: ascending.
    """
    builder = BatchBuilder()
    starts = [each.first for each in reasons]
    for first, last in ranges:
        for offset in range(first, last + 1):
            at = bisect_right(starts, offset) - 1
            reason = reasons[at] if at >= 0 and reasons[at].last >= offset else None
            record = records.get(offset) if source.copies_record else None
            headers = [*(record.headers if record is not None else ())]
            headers += _headers(source, offset, reason)
            builder.append(
                None if record is None else record.key,
                None if record is None else record.value,
                timestamp_ms=time_ms,
                headers=headers,
            )
    return builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def _headers(source: Source, offset: int, reason: StateBatch | None) -> list[Header]:
    headers: list[Header] = [
        ("__dlq.errors.topic", source.topic.encode()),
        ("__dlq.errors.partition", b"%d" % source.partition),
        ("__dlq.errors.offset", b"%d" % offset),
        ("__dlq.errors.group", source.group_id.encode()),
    ]
    if reason is not None:
        headers += [
            ("__dlq.errors.delivery.count", b"%d" % reason.delivery_count),
            ("__dlq.errors.message", _MESSAGES[reason.state]),
        ]
    return headers
