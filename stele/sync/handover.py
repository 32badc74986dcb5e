"""The way of records from callers' threads to the loop's."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Final, cast

from stele import aio
from stele.producer.arguments import NewRecord
from stele.producer.destinations import TopicUnknownError
from stele.producer.outcomes import BatchOutcome
from stele.sync.delivery import Delivery

PUMP_INTERVAL_S: Final = 0.001
MAX_IDLE_ROUNDS: Final = 5
"""After this many rounds without a record the loop waits until the next record wakes it."""
BUSY_ROUND: Final = 2_500
"""After a round with so many records the next one follows at once."""
RECORDS_PER_TURN: Final = 1_000
"""The loop lets other tasks run after so many."""


class Handover:
    """The records that were accepted by ``send`` and are in no batch yet.

    ``buffer_memory`` counts them from the moment of their acceptance. So the loop never waits for
    room for them. A record whose topic is not known any more waits aside, with those of the same
    topic that come after it, and holds up no others. Each record is accepted or refused by itself.

    The callers share a lock. The loop does not take it: see ``stele.sync.errand``.
    """

    def __init__(self, producer: aio.Producer, loop: asyncio.AbstractEventLoop) -> None:
        self._producer = producer
        self._intake = producer.intake
        self._buffer = producer.buffer
        self._loop = loop
        self._lock = threading.RLock()  # a signal handler may send, too
        self._handed: deque[NewRecord] = deque()
        self._aside: dict[str, deque[NewRecord]] = {}  # by topic
        self._waiting: dict[asyncio.Task[None], None] = {}
        self._is_pumping = False  # only the loop changes it
        self._pumping: asyncio.Task[None] | None = None
        self._moving = asyncio.Lock()  # only one round runs at a time
        self.refusal: Exception | None = None  # the first one since the last flush

    # ------------------------------------------------------------------- the callers' threads

    def put(self, record: NewRecord, *, has_waited: bool) -> bool:
        """Hand a record over. False: there is no room."""
        with self._lock:
            if not self._buffer.hand_over(record.size, has_waited=has_waited):
                return False
            self._handed.append(record)
        if not self._is_pumping:
            self._loop.call_soon_threadsafe(self._start)
        return True

    def refuse(self, delivery: Delivery, error: Exception) -> None:
        """A record has no way at all. ``flush`` raises the error, too."""
        self.refusal = self.refusal or error
        delivery.settle(BatchOutcome.failed(error), 0)

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
            left = count = len(self._handed)
            while left:
                records = [self._handed.popleft() for _ in range(min(left, RECORDS_PER_TURN))]
                start = 0
                while start < len(records):
                    start += self._move(records, start)
                left -= len(records)
                if left:
                    await asyncio.sleep(0)
            return count

    def _move(self, records: list[NewRecord], start: int) -> int:
        """Move the record at ``start``, and those after it that can go together with it. Returns
        how many."""
        record = records[start]
        topic = record.topic
        if self._aside and topic in self._aside:
            self._aside[topic].append(record)
            return 1
        try:
            count, size = self._intake.take_run(records, start)
            if count:
                self._buffer.take_over(size)
                return count
            self._take(record)
        except TopicUnknownError:
            self._aside[topic] = deque([record])
            task = self._loop.create_task(self._wait_for(topic))
            self._waiting[task] = None
            task.add_done_callback(lambda done: self._waiting.pop(done, None))
        except Exception as error:
            self._drop(record, error)
        return 1

    def _take(self, record: NewRecord) -> None:
        self._intake.take(record)
        self._buffer.take_over(record.size)

    async def _wait_for(self, topic: str) -> None:
        refusal: Exception | None = None
        try:
            await self._producer.partitions_for(topic)
        except Exception as error:
            refusal = error
        for record in self._aside.pop(topic):
            try:
                if refusal is not None:
                    raise refusal
                self._take(record)
            except Exception as error:
                self._drop(record, error)

    def _drop(self, record: NewRecord, error: Exception) -> None:
        self.refuse(cast(Delivery, record.waiting), error)
        self._buffer.take_over(record.size)
        self._buffer.wake_for_room()
