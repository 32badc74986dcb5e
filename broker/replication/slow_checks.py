"""Work on large batches, a slice of it per turn of the event loop, in order per partition."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from stele.ids import PartitionId

J = TypeVar("J")


class SlowChecks(Generic[J]):
    """Queues of jobs by partition. While there is any, one slice runs in each turn of the loop,
    of one partition after the other: a large batch holds up its own partition only.

    No bound of its own: a job is a part of a request that its connection still has in flight.
    """

    def __init__(self, advance: Callable[[J], bool]) -> None:
        """``advance`` does a slice of a job, says whether the job is done, and does not raise."""
        self._advance = advance
        # No queue is empty. The first is the one whose turn is next.
        self._queues: dict[PartitionId, deque[J]] = {}

    def is_busy(self, partition: PartitionId) -> bool:
        """Whether a job added now would come behind others."""
        return partition in self._queues

    def add(self, partition: PartitionId, job: J) -> None:
        if not self._queues:
            asyncio.get_running_loop().call_soon(self._turn)
        self._queues.setdefault(partition, deque()).append(job)

    def _turn(self) -> None:
        partition = next(iter(self._queues))
        queue = self._queues[partition]
        if self._advance(queue[0]):
            queue.popleft()
        del self._queues[partition]
        if queue:
            self._queues[partition] = queue  # behind the others
        if self._queues:
            asyncio.get_running_loop().call_soon(self._turn)
