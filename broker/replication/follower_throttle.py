"""The quota of this broker, as a follower, for throttled replicas that are not in sync.

One quota covers all leaders, and one timer has their fetchers ask for more. A replica in the ISR
counts as in sync, as on the leader's side. Kafka's follower uses its lag at the last fetch instead:
there a member of the ISR that falls behind for a moment is held back, and leaves the ISR.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.replication.quota import ReplicationQuota
from broker.replication.replica import Replica
from stele.world import Clock


class FollowerThrottle:
    """The quota of ``follower.replication.throttled.rate``, and the partitions that wait for it."""

    def __init__(self, clock: Clock, *, broker_id: int, count_bytes: Callable[[int], None]) -> None:
        """``count_bytes`` is told of every byte of a throttled replica."""
        self._clock = clock
        self._broker_id = broker_id
        self._count_bytes = count_bytes
        self._quota = ReplicationQuota()
        # What to call, once, when there may be quota.
        self._waiting: dict[Callable[[], None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def set_rate(self, rate: int) -> None:
        """Bytes per second, from now on."""
        if rate != self._quota.rate:
            self._quota.set_rate(rate, self._now_ms())
            self._wake_all()

    def available_bytes(self) -> int:
        """How much may be fetched now of what is not in sync."""
        return self._quota.available_bytes(self._now_ms())

    def fetched(self, replica: Replica, size_bytes: int) -> None:
        """``size_bytes`` were fetched of a replica, in sync or not."""
        if replica.throttled_as_follower:
            self._count_bytes(size_bytes)
            self._quota.record(size_bytes, self._now_ms())

    def limit(self, replica: Replica, max_bytes: int) -> int:
        """How much of the replica a fetch may ask for; 0: it has to wait for quota."""
        if not replica.throttled_as_follower or self._broker_id in replica.machine.state.isr:
            return max_bytes
        return min(max_bytes, self.available_bytes())

    def holds_back(self, replica: Replica) -> bool:
        """Whether the replica has to wait for quota."""
        return self.limit(replica, 1) == 0

    def await_quota(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once when there may be quota."""
        self._waiting[wake] = None
        if self._timer is None:
            delay_ms = self._quota.retry_after_ms(self._now_ms())
            if delay_ms is not None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(delay_ms / 1000, self._wake_all)

    def stop(self) -> None:
        """Nobody is called any more."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake_all(self) -> None:
        waiting = list(self._waiting)
        self.stop()
        for wake in waiting:
            wake()

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000
