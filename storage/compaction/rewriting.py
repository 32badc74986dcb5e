"""What compaction keeps of a batch.

A record stays if it is the latest of its key, or not below ``Rules.map_end``. A tombstone (a record
without a value) goes ``delete.retention.ms`` after the first round that found it, so that readers
who have seen an older value of its key have time to read it. That round writes the time at which it
may go, the delete horizon, into the batch: it sets bit 6 of the attributes, and the base timestamp
is the horizon (KIP-534). Records without a key go, as in Kafka: they were written before the topic
was compacted.

What stays keeps its offset, its timestamp and its order. A batch keeps base offset, last offset,
leader epoch and the producer's id, epoch and sequence. A batch without records goes, too, unless it
is one of the last of its producer, whose repetitions must be recognized, or ends its segment. Then
its header stays.

The records of an aborted transaction go at once. The marker of a transaction goes
``delete.retention.ms`` after the first round that found none of its batches, as a tombstone does.
So a reader that has seen records of the transaction also finds out what became of it. The last
marker of a producer stays if nothing else tells its epoch.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from stele.wire.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    BatchHeader,
    seal,
)
from stele.wire.compression import Compression, compress
from stele.wire.record import encode_varint
from stele.world import Buffer
from storage.compaction.offset_map import KeptRecords, OffsetMap
from storage.compaction.stored_records import StoredRecord, body_of, stored_records

HAS_DELETE_HORIZON: Final = 0x40
_COMPRESSION_AND_TIME: Final = 0x0F
_NOTHING: Final = KeptRecords(b"", 0, has_tombstone=False, greatest_delta_ms=0)
_HEADER = struct.Struct(">qiibIhiqqqhii")


class Rules(NamedTuple):
    """The rules of a round."""

    offsets: OffsetMap
    map_end: int
    """Records from here on are not in the map, and stay."""
    now_ms: int
    delete_retention_ms: int
    kept_batches: frozenset[int]
    """The last offsets of the batches that stay even without records."""
    kept_markers: frozenset[tuple[int, int]]
    """Producer id and epoch of the markers that stay."""


def rewritten_marker(
    batch: Buffer, header: BatchHeader, rules: Rules, *, is_needed: bool
) -> Buffer | None:
    """What stays of a control batch. ``is_needed``: batches of its transaction were there when the
    round began. Raises BatchError for a batch that is damaged."""
    data = body_of(batch, header)
    if is_needed:
        return batch
    horizon_ms = header.delete_horizon_ms
    if horizon_ms is None:
        records = stored_records(data, header.record_count)
        greatest_ms = max((each.timestamp_delta_ms for each in records), default=0)
        whole = KeptRecords(data, len(records), has_tombstone=False, greatest_delta_ms=greatest_ms)
        return _encode(whole, header, rules.now_ms + rules.delete_retention_ms)
    if rules.now_ms < horizon_ms:
        return batch
    is_last = (header.producer_id, header.producer_epoch) in rules.kept_markers
    return batch if is_last else None


def rewritten(
    batch: Buffer, header: BatchHeader, rules: Rules, *, is_aborted: bool
) -> Buffer | None:
    """What stays of a whole batch: ``batch`` itself if nothing changes, None if nothing stays.

    Raises BatchError for a batch that is damaged.
    """
    data = body_of(batch, header)
    if header.base_offset >= rules.map_end and not is_aborted:
        return batch
    if is_aborted:
        stored_records(data, header.record_count)  # raises if they are damaged
        kept = _NOTHING
    else:
        kept = rules.offsets.kept_records(
            data,
            header.record_count,
            header.base_offset,
            drop_tombstones=may_drop_tombstones(header, rules),
        )
    if not kept.record_count:
        if header.last_offset not in rules.kept_batches:
            return None
        return emptied(header) if header.record_count else batch
    horizon_ms = None
    if header.delete_horizon_ms is None and kept.has_tombstone:
        horizon_ms = rules.now_ms + rules.delete_retention_ms
    if horizon_ms is None and kept.record_count == header.record_count:
        return batch
    return _encode(kept, header, horizon_ms)


def may_drop_tombstones(header: BatchHeader, rules: Rules) -> bool:
    """Whether records that go from this batch may be tombstones that nothing replaces."""
    horizon_ms = header.delete_horizon_ms
    return horizon_ms is not None and rules.now_ms >= horizon_ms


def emptied(header: BatchHeader) -> bytearray:
    """The batch without its records. It has no timestamp: searches by time find records only."""
    batch = bytearray(HEADER_SIZE)
    _finish(
        batch,
        header._replace(
            attributes=header.attributes & ~(_COMPRESSION_AND_TIME | HAS_DELETE_HORIZON),
            base_timestamp_ms=NO_TIMESTAMP,
            max_timestamp_ms=NO_TIMESTAMP,
            record_count=0,
        ),
    )
    return batch


def _encode(kept: KeptRecords, header: BatchHeader, horizon_ms: int | None) -> bytearray:
    """``horizon_ms``: the new delete horizon of the batch; None if it stays."""
    greatest_ms = header.base_timestamp_ms + kept.greatest_delta_ms
    body = kept.body
    if horizon_ms is not None:
        by_ms = header.base_timestamp_ms - horizon_ms
        records = stored_records(body, kept.record_count)
        body = b"".join([_moved(body, each, by_ms) for each in records])
        header = header._replace(
            base_timestamp_ms=horizon_ms, attributes=header.attributes | HAS_DELETE_HORIZON
        )
    if not header.is_log_append_time:
        header = header._replace(max_timestamp_ms=greatest_ms)
    if header.compression is not Compression.NONE:
        body = compress(header.compression, body)
    batch = bytearray(HEADER_SIZE) + body
    _finish(batch, header._replace(record_count=kept.record_count))
    return batch


def _moved(data: bytes, record: StoredRecord, by_ms: int) -> bytes:
    """A record whose timestamp delta is greater by ``by_ms``."""
    time = encode_varint(record.timestamp_delta_ms + by_ms)
    size = 1 + len(time) + record.end - record.rest
    return encode_varint(size) + b"\x00" + time + data[record.rest : record.end]


def _finish(batch: bytearray, header: BatchHeader) -> None:
    """Write the header of a batch whose records are in place."""
    header = header._replace(size_bytes=len(batch) - PREFIX_SIZE)  # what the length field counts
    _HEADER.pack_into(batch, 0, *header)
    seal(batch, 0, len(batch))
