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
        if self._back is not None and sent_at >= self._failed_at:
            self._awaited.discard(partition)
            if not self._awaited and not self._back.done():
                self._back.set_result(time.perf_counter())

    async def outage_s(self, partitions: set[int], fail: Callable[[], None]) -> float:
        """Let something fail. Returns the seconds until each of the partitions acknowledges a
        record that was sent after that."""
        self._back = asyncio.get_running_loop().create_future()
        self._awaited = set(partitions)
        self._failed_at = time.perf_counter()
        fail()
        back_at = await asyncio.wait_for(self._back, TIMEOUT_S)
        return back_at - self._failed_at


def silent(reason: str) -> None:
    """Report nothing: the clients' waiting is what is measured."""
