"""The polls of a consumer that are not over."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from stele.consumer.group.group import LAST_COMMIT_S, ConsumerGroup

log = logging.getLogger(__name__)


class Polls:
    """A rebalance listener may poll within a poll. Closing waits for all of them: a rebalance must
    not run twice."""

    def __init__(self, group: ConsumerGroup | None) -> None:
        self._group = group
        self._by_task: Counter[asyncio.Task[object]] = Counter()
        self._ended = asyncio.Event()

    @contextmanager
    def one(self) -> Iterator[None]:
        """A poll of the current task."""
        task = asyncio.current_task()
        assert task is not None
        self._by_task[task] += 1
        if self._group is not None:
            self._group.poll_begins()
        try:
            yield
        finally:
            if self._group is not None:
                self._group.poll_ends()
            self._by_task -= Counter([task])  # leaves out a task without polls
            self._ended.set()

    @property
    def has_current_task(self) -> bool:
        """Whether the caller is within a poll."""
        return asyncio.current_task() in self._by_task

    async def ended(self) -> None:
        """A poll may be within a rebalance: it ends soon, unless the application's function
        hangs."""
        try:
            async with asyncio.timeout(LAST_COMMIT_S):
                while self._by_task:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            log.warning("closing the consumer although a rebalance listener has not returned")
