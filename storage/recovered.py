"""All that a log is made of when it is opened: segments, leader epochs, producer state."""

from __future__ import annotations

from typing import NamedTuple

from storage.leader_epochs import LeaderEpochs
from storage.producer_files import Replayed
from storage.producer_state import ProducerStates
from storage.recovery import (
    RecoveredSegments,
    RecoveryRequest,
    recover_epochs,
    recover_producers,
    recover_segments,
)
from storage.segment import Segment
from storage.steps import Steps


class RecoveredLog(NamedTuple):
    """A log as it is found, a torn end taken off."""

    segments: list[Segment]
    """In order, at least one; the last is the one to append to."""
    epochs: LeaderEpochs
    producers: ProducerStates
    replayed: Replayed
    """How much stands behind the newest producer snapshot."""
    start_offset: int
    high_watermark: int
    truncated_bytes: int

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset


def recover_log(request: RecoveryRequest) -> Steps[RecoveredLog]:
    """Open what is there, and check and sync what a crash may have touched. Raises
    CorruptLogError, LogDirectoryError, OSError; nothing is open then."""
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
    epochs = yield from recover_epochs(request, recovered)
    # Epochs begin with the log. Theirs is the later start where a crash came between their file
    # and the checkpoint of the starts.
    start_offset = max(start_offset, epochs.start_offset)
    high_watermark = min(max(request.high_watermark, start_offset), recovered.end_offset)
    request = request._replace(start_offset=start_offset)
    producers, replayed = yield from recover_producers(request, recovered)
    return RecoveredLog(
        recovered.segments,
        epochs,
        producers,
        replayed,
        start_offset,
        high_watermark,
        recovered.truncated_bytes,
    )
