"""Reading the batches of a log's segments again, in order, to make its state anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from stele.wire.batch import CONTROL, BatchError, BatchHeader, decode
from stele.wire.control_records import EndMarker, decode_end_marker
from stele.world import Buffer
from storage.cold_range import ColdRange
from storage.segment import Segment
from storage.steps import Pace, Steps

_SCAN_BYTES: Final = 4 << 20


class Replayed(NamedTuple):
    """How much there is between the newest snapshot and the log's end."""

    batches: int
    size_bytes: int


def end_marker_of(
    batch: Buffer, position: int = 0, *, verify_crc: bool = False
) -> EndMarker | None:
    """The marker in a control batch of a producer. None if it has no record any more. Raises
    BatchError."""
    records = decode(batch, position, verify_crc=verify_crc)
    return decode_end_marker(records[0]) if records else None


def marker_at(segment: Segment, position: int, header: BatchHeader) -> EndMarker | None:
    """The marker in the batch at ``position`` of a segment, waiting for the device; None if the
    batch ends no transaction.

    A changed bit could make a commit an abort, and recovery checks no CRC below the recovery point.
    So the CRC is checked here. Raises CorruptLogError.
    """
    if not header.attributes & CONTROL or header.producer_id < 0:
        return None
    try:
        return end_marker_of(segment.file.read_now(position, header.size_bytes), verify_crc=True)
    except BatchError as error:
        raise segment.corrupt(position, error.message, header.base_offset) from error


def replay(
    segments: Sequence[Segment],
    offset: int,
    take: Callable[[BatchHeader, EndMarker | None], None],
) -> Steps[Replayed]:
    """Pass every batch from ``offset`` on to ``take``, in order, with its marker if it ends a
    transaction. Raises CorruptLogError, OSError."""
    count = size = 0
    for segment in segments:
        if segment.end_offset <= offset:
            continue
        position = segment.locate(offset, wait=True)
        if isinstance(position, ColdRange):
            raise segment.corrupt(position.position, "the file ends inside a batch")
        pace = Pace(segment.path, _SCAN_BYTES)
        yield from pace.begin(position, segment.size)
        for at, header in segment.headers(position):
            if (step := pace.at(at + header.size_bytes, segment.size)) is not None:
                yield step
            count += 1
            size += header.size_bytes
            if header.base_offset >= offset:
                take(header, marker_at(segment, at, header))
        if segment is not segments[-1]:
            segment.unload()
    return Replayed(count, size)
