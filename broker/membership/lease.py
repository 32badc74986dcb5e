"""How long a broker may act as one that the controller has not fenced. Pure but for the clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from metadata.brokers import STREAM_GRACE_S
from stele.world import Clock

_REMEMBERED: Final = 100
"""The most acknowledgements that wait for their metadata. To forget the oldest is safe."""


class Lease:
    """The time during which this broker's session at the controller lasts for certain.

    The controller's session begins anew with each heartbeat that it receives. The lease begins anew
    with each acknowledged heartbeat, at the time when that was sent. So the lease ends before the
    session does.

    An acknowledgement begins the lease only when this broker has applied the metadata that were
    committed when the controller answered. For example, a broker is paused, fenced, and resumed.
    Its next heartbeat unfences it. Without the rule it would act as the leader of its former
    partitions until the metadata reach it.

    ``session_s``: the duration of both. ``applied_offset``: that of the metadata, -1 before the
    first.
    """

    def __init__(self, clock: Clock, session_s: float, applied_offset: Callable[[], int]) -> None:
        self._clock = clock
        self._session_s = session_s
        self._applied_offset = applied_offset
        # When the heartbeats of the present stream were sent that are not acknowledged yet.
        self._sent_at: dict[int, float] = {}
        # When the newest *acknowledged* heartbeat was sent, never when its answer came.
        self._acknowledged_sent_at: float | None = None
        # Acknowledgements whose metadata were not applied when it was looked last: the offset that
        # has to be applied, and when the heartbeat was sent. Both ascend.
        self._awaiting: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)
        self._began_at: float | None = None
        # When this broker itself ended a stream whose controller may still be active; None if a
        # heartbeat was acknowledged since. That controller can end the session before its timeout.
        self._left_at: float | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the controller cannot have ended the session yet, by its timeout or because this
        broker ended its stream.

        If the network breaks the stream, and no probe reaches this broker then, the controller may
        end the session before the lease ends. This broker cannot know it.
        Reads the clock anew: after a pause the event loop's time is old, the clock's is not.
        """
        applied = self._applied_offset()
        while self._awaiting and self._awaiting[0][0] <= applied:
            self._began_at = self._awaiting.popleft()[1]
        if self._began_at is None or self._was_left_too_long():
            return False
        return self._clock.monotonic() - self._began_at < self._session_s

    @property
    def acknowledged_ago_s(self) -> float | None:
        """The time since the newest acknowledged heartbeat was sent; None before the first."""
        if self._acknowledged_sent_at is None:
            return None
        return self._clock.monotonic() - self._acknowledged_sent_at

    def forget(self) -> None:
        """Another registration: nothing of it was acknowledged."""
        self._acknowledged_sent_at = None
        self._end()

    def stream_opened(self) -> None:
        """Answers to heartbeats of another stream prove nothing about when they were sent."""
        self._sent_at.clear()

    def stream_left(self) -> None:
        """This broker is about to end a stream whose controller may be active."""
        if self._left_at is None:
            self._left_at = self._clock.monotonic()

    def sent(self, sequence: int) -> None:
        """A heartbeat is about to be sent."""
        self._sent_at[sequence] = self._clock.monotonic()

    def acknowledged(self, sequence: int, committed_offset: int) -> bool:
        """A heartbeat was acknowledged, when the metadata were committed up to that offset. Whether
        it was one of the present stream."""
        sent_at = self._sent_at.get(sequence)
        if sent_at is None:
            return False
        for earlier in [number for number in self._sent_at if number <= sequence]:
            del self._sent_at[earlier]
        if self._was_left_too_long():
            self._end()
        if self._awaiting:
            committed_offset = max(committed_offset, self._awaiting[-1][0])
        self._awaiting.append((committed_offset, sent_at))
        self._acknowledged_sent_at = sent_at
        self._left_at = None
        return True

    def _was_left_too_long(self) -> bool:
        """Whether the controller may have ended the session since this broker ended its stream."""
        left_at = self._left_at
        return left_at is not None and self._clock.monotonic() - left_at >= STREAM_GRACE_S

    def _end(self) -> None:
        """Earlier acknowledgements prove nothing any more."""
        self._began_at = None
        self._awaiting.clear()
