"""Everything that a log is made of when it is opened: segments, leader epochs, producers."""

from __future__ import annotations

from typing import NamedTuple

from storage.leader_epochs import LeaderEpochs
from storage.producer_recovery import RecoveredProducers, recover_producers
from storage.recovery import (
    RecoveredSegments,
    RecoveryRequest,
    recover_epochs,
    recover_segments,
)
from storage.segment import Segment
from storage.steps import Steps


class RecoveredLog(NamedTuple):
    """A log as recovery left it, without a torn end."""

    segments: list[Segment]
    """In order, at least one. The last is the active segment."""
    epochs: LeaderEpochs
    producers: RecoveredProducers
    start_offset: int
    high_watermark: int
    truncated_bytes: int

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset


def recover_log(request: RecoveryRequest) -> Steps[RecoveredLog]:
    """Open the log, check and sync what a crash may have affected. Raises CorruptLogError,
    LogDirectoryError, OSError; then nothing is open."""
    recovered = yield from recover_segments(request)
    try:
        return (yield from _with_state(request, recovered))
    except BaseException:
        for segment in recovered.segments:
            segment.close()
        raise


def _with_state(request: RecoveryRequest, recovered: RecoveredSegments) -> Steps[RecoveredLog]:
    start_offset = max(recovered.segments[0].base_offset, request.start_offset)
    request = request._replace(start_offset=start_offset)
    epochs, begin = yield from recover_epochs(request, recovered)
    # The leader epochs begin where the log begins. They have the later start if a crash came after
    # the write of their file and before that of the checkpoint.
    start_offset = max(start_offset, begin)
    high_watermark = min(max(request.high_watermark, start_offset), recovered.end_offset)
    request = request._replace(start_offset=start_offset)
    producers = yield from recover_producers(request, recovered)
    return RecoveredLog(
        recovered.segments,
        epochs,
        producers,
        start_offset,
        high_watermark,
        recovered.truncated_bytes,
    )
