"""A steady stream of records that shows how long partitions take none."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable

from stele.aio import Producer
from stele.records import RecordMetadata

SEND_EVERY_S = 0.01
TIMEOUT_S = 60.0


class Pulse:
    """Sends to all partitions of a topic in turn, and records the acknowledgements."""

    def __init__(self, producer: Producer, topic: str, partitions: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._failed_at = math.inf
        # Partitions that have not acknowledged a record sent after the failure yet.
        self._awaited: set[int] = set()
        self._back: asyncio.Future[float] | None = None
        self._acknowledged_at: dict[int, float] = {}  # by partition, the last time
        self._longest_s = 0.0  # the longest time between two acknowledgements of a partition

    async def run(self) -> None:
        """Run until it is cancelled."""
        while True:
            for partition in range(self._partitions):
                sent_at = time.perf_counter()
                delivery = await self._producer.send(self._topic, b"pulse", partition=partition)
                delivery.add_done_callback(functools.partial(self._note, partition, sent_at))
            await asyncio.sleep(SEND_EVERY_S)

    def _note(
        self, partition: int, sent_at: float, delivery: asyncio.Future[RecordMetadata]
    ) -> None:
        if delivery.cancelled() or delivery.exception() is not None:
            return
        now = time.perf_counter()
        before = self._acknowledged_at.get(partition, now)
        self._longest_s = max(self._longest_s, now - before)
        self._acknowledged_at[partition] = now
        if self._back is not None and sent_at >= self._failed_at:
            self._awaited.discard(partition)
            if not self._awaited and not self._back.done():
                self._back.set_result(now)

    async def outage_s(self, partitions: set[int], fail: Callable[[], None]) -> float:
        """Let something fail. Returns the seconds until each of the partitions acknowledges a
        record that was sent after that."""
        self._back = asyncio.get_running_loop().create_future()
        self._awaited = set(partitions)
        self._failed_at = time.perf_counter()
        fail()
        back_at = await asyncio.wait_for(self._back, TIMEOUT_S)
        return back_at - self._failed_at

    async def longest_gap_s(self, seconds: float, fail: Callable[[], None]) -> float:
        """Let something fail. Returns the longest time for which a partition acknowledged nothing,
        within so many seconds."""
        self._acknowledged_at.clear()
        self._longest_s = 0.0
        fail()
        await asyncio.sleep(seconds)
        await self.outage_s(set(range(self._partitions)), lambda: None)  # a gap may be open still
        return self._longest_s


def silent(reason: str) -> None:
    """Report nothing: the clients' waiting is what is measured."""
