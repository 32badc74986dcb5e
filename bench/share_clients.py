"""The workers of ``bench share``: members of one share group, all in one process.

Each takes records, accepts them at once and takes the next ones. One of them may be slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final

from stele.aio import ShareConsumer
from stele.errors import ApiError
from stele.ids import TopicPartition

Answer = dict[str, float]

_POLL_MS: Final = 200
_ASSIGNED_S: Final = 60.0
_WARM_S: Final = 0.5


class ShareWorkers:
    """``job`` has ``bootstrap``, ``topic``, ``group``, ``workers``, ``poll_records``, and
    ``slow_ms``: how long the first worker needs for the records of a poll."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._topic: str = job["topic"]
        self._is_single: bool = job["poll_records"] == 1
        self._slow_s: float = job["slow_ms"] / 1000
        self._acknowledged = 0
        self._refused = 0
        self._workers = [
            ShareConsumer(
                job["bootstrap"],
                group_id=job["group"],
                share_acknowledgement_mode="explicit",
                share_acquire_mode="record_limit" if self._is_single else "batch_optimized",
                max_poll_records=job["poll_records"],
                on_acknowledged=self._note,
                on_wait=lambda _: None,
            )
            for _ in range(job["workers"])
        ]

    def _note(
        self, partition: TopicPartition, offsets: Sequence[int], error: ApiError | None
    ) -> None:
        if error is None:
            self._acknowledged += len(offsets)
        else:
            self._refused += len(offsets)

    async def join(self, running: contextlib.AsyncExitStack) -> None:
        """Let all of them become members, which a first poll does, until each has partitions."""
        for each in self._workers:
            await running.enter_async_context(each)
            each.subscribe([self._topic])
        async with asyncio.timeout(_ASSIGNED_S):
            while not all(each.assignment() for each in self._workers):
                await self.throughput(_WARM_S)

    async def throughput(self, seconds: float) -> Answer:
        """``seconds`` of the answer end with the last delivery: the topic may have been emptied."""
        self._acknowledged = self._refused = 0
        began = time.perf_counter()
        counts = await asyncio.gather(
            *(
                self._work(each, began + seconds, self._slow_s if number == 0 else 0.0)
                for number, each in enumerate(self._workers)
            )
        )
        for each in self._workers:
            await each.commit()
        return {
            "deliveries": sum(count for count, _ in counts),
            "deliveries of others": sum(count for count, _ in counts[1:]),
            "acknowledgements": self._acknowledged,
            "refused": self._refused,
            "seconds": max(last_s for _, last_s in counts) - began,
        }

    async def _work(
        self, worker: ShareConsumer, until_s: float, slow_s: float
    ) -> tuple[int, float]:
        """The number of deliveries, and when the last one came."""
        count, last_s = 0, time.perf_counter()
        while time.perf_counter() < until_s:
            records = await worker.poll(timeout_ms=_POLL_MS)
            if not records:
                continue
            count, last_s = count + len(records), time.perf_counter()
            if slow_s:
                await asyncio.sleep(slow_s)
            for each in records:
                worker.acknowledge(each)
        return count, last_s
