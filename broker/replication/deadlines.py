"""One timer for all deadlines of requests that wait."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from stele.world import Clock


class Deadline:
    """One moment at which something is to be called; dropped by ``cancel``."""

    __slots__ = ("_wheel", "callback")

    def __init__(self, wheel: DeadlineWheel, callback: Callable[[], None]) -> None:
        self._wheel = wheel
        # None once called or cancelled.
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Idempotent, and harmless when it has passed."""
        if self.callback is not None:
            self.callback = None
            self._wheel.cancelled()


class DeadlineWheel:
    """Deadlines in slots of a few milliseconds; the loop holds one timer, for the earliest slot.

    Nearly every waiting request is answered before its deadline, so adding and cancelling must
    cost next to nothing; that a deadline passes up to a slot late does not matter.
    """

    def __init__(self, clock: Clock, *, slot_ms: int = 10) -> None:
        self._clock = clock
        self._slot_ms = slot_ms
        # Slot number → its deadlines, cancelled ones included until the slot passes or is swept.
        self._slots: dict[int, list[Deadline]] = {}
        self._order: list[int] = []  # a heap of exactly the slots' numbers
        self._timer: asyncio.TimerHandle | None = None
        self._timer_slot = 0  # of the running timer
        self._live = 0
        self._dead = 0

    def __len__(self) -> int:
        return self._live

    def add(self, delay_ms: float, callback: Callable[[], None]) -> Deadline:
        """Call back in ``delay_ms``, or up to a slot later."""
        slot = int((self._clock.monotonic() * 1000 + delay_ms) // self._slot_ms) + 1
        deadline = Deadline(self, callback)
        waiting = self._slots.get(slot)
        if waiting is None:
            self._slots[slot] = [deadline]
            heapq.heappush(self._order, slot)
            self._schedule()
        else:
            waiting.append(deadline)
        self._live += 1
        return deadline

    def cancelled(self) -> None:
        """A deadline was cancelled; many of them are swept, so that long ones hold no memory."""
        self._live -= 1
        self._dead += 1
        if self._dead > 2 * self._live + 256:
            self._sweep()

    def close(self) -> None:
        """Drop every deadline; none is called any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.clear()
        self._order.clear()
        self._live = self._dead = 0

    def _sweep(self) -> None:
        kept = {
            slot: live
            for slot, waiting in self._slots.items()
            if (live := [deadline for deadline in waiting if deadline.callback is not None])
        }
        self._slots = kept
        self._order = sorted(kept)
        self._dead = 0
        self._schedule()

    def _schedule(self) -> None:
        """Have the timer run for the earliest slot; a timer that is early just runs in vain."""
        if not self._order:
            return
        first = self._order[0]
        if self._timer is not None:
            if self._timer_slot <= first:
                return
            self._timer.cancel()
        self._timer_slot = first
        delay_s = first * self._slot_ms / 1000 - self._clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, delay_s), self._pass)

    def _pass(self) -> None:
        self._timer = None
        now = int(self._clock.monotonic() * 1000 // self._slot_ms)
        due: list[Deadline] = []
        while self._order and self._order[0] <= now:
            due += self._slots.pop(heapq.heappop(self._order))
        self._schedule()
        for deadline in due:
            callback, deadline.callback = deadline.callback, None
            if callback is None:
                self._dead -= 1
            else:
                self._live -= 1
                callback()
