"""The way of records from callers' threads to the loop's."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any, Final, cast

from stele import aio
from stele.producer.arguments import NewRecord
from stele.producer.destinations import TopicUnknownError
from stele.sync.delivery import Delivery

PUMP_INTERVAL_S: Final = 0.001
MAX_IDLE_ROUNDS: Final = 5
"""After this many rounds without a record the loop waits until the next record wakes it."""
BUSY_ROUND: Final = 2_500
"""After a round with so many records the next one follows at once."""
RECORDS_PER_TURN: Final = 1_000
"""The loop lets other tasks run after so many."""


Handed = tuple[Delivery, NewRecord]


class Handover:
    """The records that were accepted by ``send`` and are in no batch yet.

    ``buffer_memory`` counts them from the moment of their acceptance. So the loop never waits for
    room for them. A record whose topic is not known any more waits aside, with those of the same
    topic that come after it, and holds up no others. Each record is accepted or refused by itself.

    The callers share a lock. The loop does not take it: see ``stele.sync.errand``.
    """

    def __init__(self, producer: aio.Producer, loop: asyncio.AbstractEventLoop) -> None:
        self._producer = producer
        self._loop = loop
        self._lock = threading.RLock()  # a signal handler may send, too
        self._handed: deque[Handed] = deque()
        self._aside: dict[str, deque[Handed]] = {}  # by topic
        self._waiting: dict[asyncio.Task[None], None] = {}
        self._is_pumping = False  # only the loop changes it
        self._pumping: asyncio.Task[None] | None = None
        self._moving = asyncio.Lock()  # only one round runs at a time
        self.refusal: Exception | None = None  # the first one since the last flush

    # ------------------------------------------------------------------- the callers' threads

    def put(self, delivery: Delivery, record: NewRecord, *, has_waited: bool) -> bool:
        """Hand a record over. False: there is no room."""
        buffer = self._producer.buffer
        with self._lock:
            if not buffer.hand_over(record.size, has_waited=has_waited):
                return False
            self._handed.append((delivery, record))
        if not self._is_pumping:
            self._loop.call_soon_threadsafe(self._start)
        return True

    def refuse(self, delivery: Delivery, error: Exception) -> None:
        """A record has no way at all. ``flush`` raises the error, too."""
        self.refusal = self.refusal or error
        delivery.set_exception(error)

    # ------------------------------------------------------------------------------ the loop

    async def move(self) -> None:
        """Move all that was handed over before, also what waits for its topic."""
        await self._round()
        for task in list(self._waiting):
            await asyncio.shield(task)  # it has records, whatever becomes of the caller

    def _start(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            self._pumping = self._loop.create_task(self._pump())

    async def _pump(self) -> None:
        """Move records in rounds. If each record of a busy caller woke the loop, each would cost a
        change of threads."""
        idle_rounds = 0
        while True:
            moved = await self._round()
            idle_rounds = 0 if moved else idle_rounds + 1
            if idle_rounds > MAX_IDLE_ROUNDS:
                self._is_pumping = False
                if not self._handed:  # an append after this look wakes the loop
                    return
                self._is_pumping = True
            if moved < BUSY_ROUND:
                await asyncio.sleep(PUMP_INTERVAL_S)

    async def _round(self) -> int:
        """Returns how many records were moved. Rounds keep the order of the records."""
        async with self._moving:
            count = len(self._handed)
            for number in range(1, count + 1):
                self._move(self._handed.popleft())
                if number % RECORDS_PER_TURN == 0:
                    await asyncio.sleep(0)
            return count

    def _move(self, handed: Handed) -> None:
        topic = handed[1].topic
        if self._aside and topic in self._aside:
            self._aside[topic].append(handed)
            return
        try:
            self._take(handed)
        except TopicUnknownError:
            self._aside[topic] = deque([handed])
            task = self._loop.create_task(self._wait_for(topic))
            self._waiting[task] = None
            task.add_done_callback(lambda done: self._waiting.pop(done, None))
        except Exception as error:
            self._drop(handed, error)

    def _take(self, handed: Handed) -> None:
        delivery, record = handed
        self._producer.take(cast(Any, delivery), record)
        self._producer.buffer.take_over(record.size)

    async def _wait_for(self, topic: str) -> None:
        refusal: Exception | None = None
        try:
            await self._producer.partitions_for(topic)
        except Exception as error:
            refusal = error
        for handed in self._aside.pop(topic):
            try:
                if refusal is not None:
                    raise refusal
                self._take(handed)
            except Exception as error:
                self._drop(handed, error)

    def _drop(self, handed: Handed, error: Exception) -> None:
        delivery, record = handed
        self.refuse(delivery, error)
        buffer = self._producer.buffer
        buffer.take_over(record.size)
        buffer.wake_for_room()
