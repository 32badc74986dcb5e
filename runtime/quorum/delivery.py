"""Delivers committed batches and changes of leadership to the listeners, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from raft.api import QuorumListener
from raft.messages import SnapshotId
from runtime.quorum.log import QuorumLog
from stele.errors import ApiError

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
        self._snapshot = log.snapshots.newest  # to be delivered unless what it holds was
        self._delivered = 0  # everything committed below was delivered, once
        self._high_watermark = 0 if self._snapshot is None else self._snapshot.end_offset
        self.bytes_delivered = 0  # of batches, since the start
        self.timestamp_ms = 0  # of the last batch delivered
        self._news: deque[_News] = deque()  # after_offset ascends, and is <= _high_watermark
        self._wake = asyncio.Event()
        if self._snapshot is not None:
            self._wake.set()

    @property
    def delivered(self) -> int:
        """The listeners have everything below."""
        return self._delivered

    def committed(self, high_watermark: int) -> None:
        self._high_watermark = max(self._high_watermark, high_watermark)
        self._wake.set()

    def installed(self, snapshot: SnapshotId) -> None:
        """A snapshot has taken the place of the log."""
        self._snapshot = snapshot
        self.committed(snapshot.end_offset)

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
        """The replica stops: deliver the loss of leadership and the like, without the batches
        before it."""
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
            if self._snapshot is not None and self._snapshot.end_offset > self._delivered:
                self._deliver_snapshot(self._snapshot)
            else:
                await self._deliver_some(end_offset)
            if self._delivered < end_offset:
                await asyncio.sleep(0)  # a long catch-up leaves the loop to others, too

    def _deliver_snapshot(self, snapshot: SnapshotId) -> None:
        content = self._log.snapshots.load(snapshot)
        self._delivered, self.timestamp_ms = snapshot.end_offset, content.timestamp_ms
        for listener in self.listeners:
            listener.on_snapshot(snapshot.end_offset, content.records)

    async def _deliver_some(self, end_offset: int) -> None:
        snapshot = self._snapshot
        try:
            found = await self._log.read_committed(self._delivered, end_offset)
        except ApiError:
            if self._snapshot is snapshot:
                raise
            return  # a snapshot took the log's place while it was read: deliver that
        self._delivered = found.next_offset
        self.bytes_delivered += found.size_bytes
        if found.batches:
            self.timestamp_ms = found.batches[-1].timestamp_ms
        for listener in self.listeners:
            listener.on_commit(found.batches, found.next_offset)
