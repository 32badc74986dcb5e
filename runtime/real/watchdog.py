"""Finds the code that keeps the event loop from everything else.

The loop beats. Each beat sets an alarm somewhat ahead, and the next one moves it. If the loop
stands still, the alarm goes off: its handler runs between two bytecodes of the running code, and
remembers its place. The beat that comes at last measures the time. There is no thread, which would
compete for the interpreter, and nothing but a timer while all is well.

If a C function runs, the handler runs when it returns: the line is right, the alarm late.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
import traceback
from types import FrameType
from typing import Any, Final

from runtime.metrics.registry import MetricsRegistry

logger = logging.getLogger(__name__)

LONG_TURN_S: Final = 0.1
_BEAT_S: Final = 0.05
"""A turn may be measured up to this much too long, because the loop may have been idle before it,
and never too short. Beats cost 0.15 % of a core."""
_LOG_INTERVAL_S: Final = 1.0
_FRAMES: Final = 16  # of a stack, the innermost


class Watchdog:
    """Watches the event loop of the main thread; ``SIGALRM`` is its own from ``start`` to ``stop``.

    A turn is long from ``long_turn_s`` on: of these each is counted, and at most one in a second is
    logged, with the stack at that moment.
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        *,
        long_turn_s: float = LONG_TURN_S,
        beat_s: float = _BEAT_S,
    ) -> None:
        self._long_turn_s = long_turn_s
        self._beat_s = beat_s
        self._timer: asyncio.TimerHandle | None = None
        self._handler: Any = None  # the earlier handler of SIGALRM
        self._beat_at = 0.0
        self._beat_cpu = 0.0
        self._stack: traceback.StackSummary | None = None
        self._longest_s = 0.0
        self._logged_at = float("-inf")
        self._long_turns = registry.counter(
            "stele_event_loop_long_turns",
            f"Turns of the event loop that took {long_turn_s * 1000:.0f} ms or more.",
        )
        registry.gauge(
            "stele_event_loop_turn_max_seconds",
            "The longest turn of the event loop since the scrape before, if it was a long one.",
            self._take_longest,
        )

    @property
    def long_turns(self) -> int:
        """The number of long turns so far."""
        return self._long_turns.value

    def start(self) -> None:
        """To be called on the event loop, in the main thread."""
        self._handler = signal.signal(signal.SIGALRM, self._alarmed)
        self._arm()

    def stop(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self._handler)

    def _arm(self) -> None:
        self._stack = None
        self._beat_at, self._beat_cpu = time.monotonic(), time.thread_time()
        self._timer = asyncio.get_running_loop().call_later(self._beat_s, self._beat)
        signal.setitimer(signal.ITIMER_REAL, self._long_turn_s)

    def _alarmed(self, _: int, frame: FrameType | None) -> None:
        if self._stack is None:
            frames = traceback.walk_stack(frame)
            # Lines are looked up when it is logged: that reads files.
            self._stack = traceback.StackSummary.extract(frames, limit=_FRAMES, lookup_lines=False)

    def _beat(self) -> None:
        spent_s = time.monotonic() - self._beat_at
        if spent_s >= self._long_turn_s:
            self._long_turns.value += 1
            self._longest_s = max(self._longest_s, spent_s)
            self._tell(spent_s, time.thread_time() - self._beat_cpu)
        self._arm()

    def _tell(self, spent_s: float, cpu_s: float) -> None:
        if time.monotonic() - self._logged_at < _LOG_INTERVAL_S:
            return
        self._logged_at = time.monotonic()
        stack = self._stack or traceback.StackSummary()
        stack.reverse()
        where = "".join(stack.format()) or "  (it was over before its stack was read)\n"
        logger.warning(
            "the event loop did nothing else for %.0f ms, %.0f ms of CPU time of it, while in\n%s",
            spent_s * 1000,
            cpu_s * 1000,
            where.rstrip("\n"),
        )

    def _take_longest(self) -> float:
        longest, self._longest_s = self._longest_s, 0.0
        return longest
