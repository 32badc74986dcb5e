"""Takes a drill's events down, with the time of one clock, in memory and in the history's file."""

from __future__ import annotations

from chaos.drills.history import Event, Header, History, HistoryWriter
from stele.world import Clock


class Recorder:
    def __init__(self, clock: Clock, header: Header, writer: HistoryWriter | None = None) -> None:
        self._clock = clock
        self._header = header
        self._writer = writer
        self._events: list[Event] = []
        self._began = clock.monotonic()

    @property
    def now_ms(self) -> float:
        """Milliseconds since the drill began."""
        return self.at_ms(self._clock.monotonic())

    def at_ms(self, monotonic_s: float) -> float:
        """A moment of the same clock, which may have been read in another process."""
        return round((monotonic_s - self._began) * 1000, 3)

    def add(self, event: Event) -> None:
        self._events.append(event)
        if self._writer is not None:
            self._writer.write(event)

    def history(self) -> History:
        return History(self._header, tuple(self._events))
