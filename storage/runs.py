"""Divides fetched bytes into runs that can be written at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stele.errors import SteleError
from stele.wire.batch import CONTROL, BatchHeader, CorruptBatchError, batches, check_crc
from stele.wire.control_records import EndMarker
from storage.errors import OutOfOrderOffsetsError
from storage.log_types import LogView
from storage.replay import end_marker_of
from storage.rolling import RunRoom, fits, must_roll, room_behind


class Run(NamedTuple):
    """Adjacent batches that go into one segment. An abort marker is alone in its run, because the
    entry of the transaction index must be written before it."""

    roll_first: bool  # whether the run begins a new segment
    batches: list[tuple[int, BatchHeader]]  # position in the data, header; never empty
    markers: dict[int, EndMarker | None]  # by position, of the control batches of producers


def runs_of(data: memoryview, log: LogView, *, verify_crc: bool, now_ms: int) -> Iterator[Run]:
    """The runs of ``data``. Append each one before you ask for the next.

    A faulty batch raises only after the good batches before it were returned.
    """
    roll, run = False, list[tuple[int, BatchHeader]]()
    markers: dict[int, EndMarker | None] = {}
    room: RunRoom | None = None  # known from the second batch of a run on
    base_offset = log.segments.active.base_offset  # of the segment that the run goes into
    expected, epoch = log.end_offset, log.latest_epoch
    fault: SteleError | None = None
    try:
        for at, header in batches(data):
            if header.base_offset < expected or header.leader_epoch < epoch:
                raise _misplaced(log, header, expected, epoch)
            if verify_crc and not check_crc(data, at, header):
                raise CorruptBatchError(f"the CRC of the batch at {header.base_offset}")
            if run:
                room = room or room_behind(
                    log, run[0][1], is_new_segment=roll, base_offset=base_offset
                )
                rolls = not room.take(header)
            else:
                newest_ms = header.max_timestamp_ms
                rolls = must_roll(log, header.size_bytes, header.last_offset, newest_ms, now_ms)
                base_offset = log.segments.active.base_offset
            if rolls:
                if run:
                    yield Run(roll, run, markers)
                roll, run, markers, room = True, [], {}, None
                base_offset = expected  # the new segment begins at the log's end
            if not fits(base_offset, header.last_offset):
                raise _misplaced(log, header, expected, epoch)
            marker: EndMarker | None = None
            if header.attributes & CONTROL and header.producer_id >= 0:
                marker = end_marker_of(data, at)
                if marker is not None and not marker.commit and run:  # it is a run of its own
                    yield Run(roll, run, markers)
                    roll, run, markers, room = False, [], {}, None
                markers[at] = marker
            run.append((at, header))
            expected, epoch = header.next_offset, header.leader_epoch
            if marker is not None and not marker.commit:
                yield Run(roll, run, markers)
                roll, run, markers, room = False, [], {}, None
    except SteleError as error:
        fault = error
    if run:
        yield Run(roll, run, markers)
    if fault is not None:
        raise fault


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
