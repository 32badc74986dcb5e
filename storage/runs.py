"""Divides fetched bytes into runs that can be written at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stele.errors import SteleError
from stele.wire.batch import (
    CONTROL,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatchError,
    batches,
    check_crc,
)
from stele.wire.control_records import EndMarker
from storage.errors import OutOfOrderOffsetsError
from storage.log_types import LogView
from storage.replay import end_marker_of
from storage.segment_room import LogRoom, names


class Run(NamedTuple):
    """Adjacent batches that go into one segment. An abort marker is alone in its run, because the
    entry of the transaction index must be written before it."""

    roll_first: bool  # whether the run begins a new segment
    batches: list[tuple[int, BatchHeader]]  # position in the data, header; never empty
    markers: dict[int, EndMarker | None]  # by position, of the control batches of producers


def runs_of(
    data: memoryview, log: LogView, room: LogRoom, *, verify_crc: bool, now_ms: int
) -> Iterator[Run]:
    """The runs of ``data``. Append each one before you ask for the next.

    A run ends where the log would begin a segment if the batches came one by one. A faulty batch
    raises only after the good batches before it were returned.
    """
    gathered = _Gathered(log, now_ms)
    expected, epoch = log.end_offset, log.latest_epoch
    fault: SteleError | None = None
    try:
        for at, header in batches(data):
            if header.base_offset < expected or header.leader_epoch < epoch:
                raise _misplaced(log, header, expected, epoch)
            if verify_crc and not check_crc(data, at, header):
                raise CorruptBatchError(f"the CRC of the batch at {header.base_offset}")
            if not room.fits(
                gathered, header.size_bytes, header.last_offset, header.max_timestamp_ms, now_ms
            ):
                if gathered.batches:
                    yield gathered.run
                gathered = _Gathered(log, now_ms, new_base_offset=expected)
            # Of a segment that has batches, ``fits`` has looked at that.
            if not gathered.size and not names(gathered.base_offset, header.last_offset):
                raise _misplaced(log, header, expected, epoch)
            if header.attributes & CONTROL and header.producer_id >= 0:
                marker = end_marker_of(data, at)
                is_alone = marker is not None and not marker.commit
                if is_alone and gathered.batches:
                    yield gathered.run
                    gathered = _Gathered(log, now_ms)
                gathered.markers[at] = marker
            else:
                is_alone = False
            gathered.take(at, header)
            expected, epoch = header.next_offset, header.leader_epoch
            if is_alone:
                yield gathered.run
                gathered = _Gathered(log, now_ms)
    except SteleError as error:
        fault = error
    if gathered.batches:
        yield gathered.run
    if fault is not None:
        raise fault


class _Gathered:
    """The batches of the next run, and the segment as it will be with them: a new one or the active
    one."""

    __slots__ = (
        "_bytes_since_index",
        "_interval",
        "_is_new",
        "base_offset",
        "batches",
        "created_ms",
        "first_timestamp_ms",
        "index_entries",
        "markers",
        "size",
    )

    def __init__(self, log: LogView, now_ms: int, *, new_base_offset: int | None = None) -> None:
        self._interval = log.config.index_interval_bytes
        self._is_new = new_base_offset is not None
        if new_base_offset is None:
            active = log.segments.active
            self.base_offset, self.created_ms = active.base_offset, active.created_ms
            self.size, self.index_entries = active.size, active.index_entries
            self.first_timestamp_ms = active.first_timestamp_ms
            self._bytes_since_index = active.bytes_since_index
        else:
            self.base_offset, self.created_ms = new_base_offset, now_ms
            self.size = self.index_entries = self._bytes_since_index = 0
            self.first_timestamp_ms = NO_TIMESTAMP
        self.batches: list[tuple[int, BatchHeader]] = []
        self.markers: dict[int, EndMarker | None] = {}

    @property
    def run(self) -> Run:
        return Run(self._is_new, self.batches, self.markers)

    def take(self, at: int, header: BatchHeader) -> None:
        """The batch goes into the run, and into the segment as by ``Segment.note``."""
        self.batches.append((at, header))
        size_bytes, unseen = header.size_bytes, self._bytes_since_index
        if self.size == 0:
            self.first_timestamp_ms = header.max_timestamp_ms
        if unseen > self._interval:
            unseen = 0
            self.index_entries += 1
        self._bytes_since_index = unseen + size_bytes
        self.size += size_bytes


def _misplaced(
    log: LogView, header: BatchHeader, expected: int, epoch: int
) -> OutOfOrderOffsetsError:
    if header.base_offset < expected:
        return OutOfOrderOffsetsError(
            f"{log.name}: a batch at {header.base_offset}, the log ends at {expected}"
        )
    if header.leader_epoch >= epoch:
        return OutOfOrderOffsetsError(
            f"{log.name}: a batch that ends at {header.last_offset}, the log ends at {expected}: "
            "no segment has room for so large a gap"
        )
    return OutOfOrderOffsetsError(
        f"{log.name}: a batch of epoch {header.leader_epoch} at {header.base_offset}, "
        f"the log is in epoch {epoch}"
    )
