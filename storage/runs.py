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
from storage.rolling import must_roll, must_roll_behind


class Run(NamedTuple):
    """Adjacent batches that go into one segment."""

    roll_first: bool  # whether the run begins a new segment
    batches: list[tuple[int, BatchHeader]]  # position in the data, header; never empty
    markers: dict[int, EndMarker | None]  # by position, of the control batches of producers


def runs_of(data: memoryview, log: LogView, *, verify_crc: bool, now_ms: int) -> Iterator[Run]:
    """The runs of ``data``. Append each one before you ask for the next.

    A faulty batch raises only after the good batches before it were returned.
    """
    roll, run, run_bytes = False, list[tuple[int, BatchHeader]](), 0
    markers: dict[int, EndMarker | None] = {}
    expected, epoch = log.end_offset, log.latest_epoch
    fault: SteleError | None = None
    try:
        for at, header in batches(data):
            _check_follows(log, header, expected, epoch)
            if verify_crc and not check_crc(data, at, header):
                raise CorruptBatchError(f"the CRC of the batch at {header.base_offset}")
            if _must_roll(log, roll, run, run_bytes, header, now_ms):
                if run:
                    yield Run(roll, run, markers)
                roll, run, run_bytes, markers = True, [], 0, {}
            if header.attributes & CONTROL and header.producer_id >= 0:
                markers[at] = end_marker_of(data, at)
            run.append((at, header))
            run_bytes += header.size_bytes
            expected, epoch = header.next_offset, header.leader_epoch
    except SteleError as error:
        fault = error
    if run:
        yield Run(roll, run, markers)
    if fault is not None:
        raise fault


def _check_follows(log: LogView, header: BatchHeader, expected: int, epoch: int) -> None:
    if header.base_offset < expected:
        raise OutOfOrderOffsetsError(
            f"{log.name}: a batch at {header.base_offset}, the log ends at {expected}"
        )
    if header.leader_epoch < epoch:
        raise OutOfOrderOffsetsError(
            f"{log.name}: a batch of epoch {header.leader_epoch} at {header.base_offset}, "
            f"the log is in epoch {epoch}"
        )


def _must_roll(
    log: LogView,
    roll: bool,
    run: list[tuple[int, BatchHeader]],
    run_bytes: int,
    header: BatchHeader,
    now_ms: int,
) -> bool:
    if run:
        return must_roll_behind(log, run, run_bytes, header, is_new_segment=roll)
    return must_roll(log, header.size_bytes, header.last_offset, header.max_timestamp_ms, now_ms)
