"""Ranges of logs that fetches need and that are not in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from broker.replication.fetch_waiting import WaitingFetch, Warming
from broker.replication.replica import Replica, ReportCorrupt
from stele.errors import ApiError
from storage.cold_range import ColdRange
from storage.errors import CorruptLogError
from storage.log import PartitionLog

logger = logging.getLogger(__name__)

AT_ONCE: Final = 2
"""So many ranges are read at once. The others wait, in the order of their coming. What is in the
device's queue delays the syncs of producers."""


class ColdReads:
    """Brings ranges into memory, each once for all fetches that wait for it."""

    def __init__(self, on_corrupt: ReportCorrupt, look: Callable[[WaitingFetch], None]) -> None:
        """``look`` looks at a fetch again, when its range is there or cannot be read."""
        self._on_corrupt = on_corrupt
        self._look = look
        self._warmings: dict[ColdRange, Warming] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    def stop(self) -> None:
        for warming in self._warmings.values():
            if warming.task is not None:
                warming.task.cancel()

    def warm(
        self, waiting: WaitingFetch, replica: Replica, log: PartitionLog, cold: ColdRange
    ) -> None:
        if waiting.warming is not None:
            return
        warming = self._warmings.get(cold) or self._begin(replica, log, cold)
        waiting.warming = warming
        warming.waiting[waiting] = None

    def warm_for_later(self, replica: Replica, log: PartitionLog, cold: ColdRange) -> None:
        """A fetch was answered without this range, and the next one will ask for it. Otherwise a
        partition that is read from memory would always be answered before one that is not.

        If other ranges are being read the next fetch asks again.
        """
        if cold not in self._warmings and not self._room.locked():
            self._begin(replica, log, cold)

    def _begin(self, replica: Replica, log: PartitionLog, cold: ColdRange) -> Warming:
        warming = self._warmings[cold] = Warming()
        warming.task = asyncio.get_running_loop().create_task(
            self._warm_and_retry(warming, replica, log, cold), name="cold-read"
        )
        return warming

    async def _warm_and_retry(
        self, warming: Warming, replica: Replica, log: PartitionLog, cold: ColdRange
    ) -> None:
        failed = False
        try:
            async with self._room:
                await log.warm(cold)
        except (CorruptLogError, ApiError) as error:
            # What cannot be warmed stays cold: to read again would be to wait for ever.
            failed = True
            logger.warning("%r: warming %s: %s", replica, cold.path, error)
            if isinstance(error, CorruptLogError):
                self._on_corrupt(replica, log, error)
        finally:
            del self._warmings[cold]
        for waiting in list(warming.waiting):
            waiting.warming = None
            if failed:
                waiting.unread.add(replica.id)
            self._look(waiting)
