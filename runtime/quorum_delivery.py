"""Hands the listeners what is committed and who leads: in order, never re-entrantly."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from raft.api import QuorumListener
from runtime.quorum_log import QuorumLog

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _News:
    """Something to tell each listener once everything below ``after_offset`` is delivered."""

    after_offset: int
    tell: Callable[[QuorumListener], None]


class Delivery:
    """One task reads the log up to the high watermark and calls the listeners.

    News of leadership keep their place between the batches: a listener that hears of a lost
    leadership has seen everything that this replica then knew to be committed.
    """

    def __init__(self, log: QuorumLog) -> None:
        self.listeners: list[QuorumListener] = []
        self._log = log
        self._delivered = log.start_offset  # every committed batch below was delivered, once
        self._high_watermark = log.start_offset  # never goes back; >= _delivered
        self._news: deque[_News] = deque()  # after_offset ascends, and is <= _high_watermark
        self._wake = asyncio.Event()

    def committed(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        self._wake.set()

    def tell(self, news: Callable[[QuorumListener], None]) -> None:
        """Queue news behind everything that is committed by now."""
        self._news.append(_News(self._high_watermark, news))
        self._wake.set()

    async def run(self) -> None:
        """Deliver for ever. Raises what a listener or the disk raises."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._news:
                news = self._news[0]
                await self._deliver(news.after_offset)
                self._news.popleft()
                self._tell_all(news)
            await self._deliver(self._high_watermark)

    def flush_news(self) -> None:
        """The replica stops: tell what can still be told, without the batches before it."""
        while self._news:
            try:
                self._tell_all(self._news.popleft())
            except Exception:
                _log.exception("a listener fails while the replica stops")

    def _tell_all(self, news: _News) -> None:
        for listener in self.listeners:
            news.tell(listener)

    async def _deliver(self, end_offset: int) -> None:
        while self._delivered < end_offset:
            found, self._delivered = await self._log.read_committed(self._delivered, end_offset)
            if found:
                for listener in self.listeners:
                    listener.on_commit(found)
            if self._delivered < end_offset:
                await asyncio.sleep(0)  # a long catch-up leaves the loop to others, too
