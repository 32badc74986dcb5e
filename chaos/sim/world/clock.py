"""A machine's clocks in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.sim.world.loop import Scheduler

# 2026-01-01T00:00:00Z: what a correct wall clock shows at virtual time zero.
EPOCH_MS = 1_767_225_600_000


class SimClock:
    """``stele.world.Clock`` of one machine. It goes on while a process is paused."""

    def __init__(self, scheduler: Scheduler, origin_s: float, offset_ms: int) -> None:
        self._scheduler = scheduler
        self._origin_s = origin_s  # differs by machine: monotonic times must not be compared
        self._offset_ms = offset_ms

    def monotonic(self) -> float:
        return self._origin_s + self._scheduler.now

    def time_ms(self) -> int:
        return EPOCH_MS + self._offset_ms + int(self._scheduler.now * 1000)

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward or back. Monotonic time does not change."""
        self._offset_ms += by_ms
