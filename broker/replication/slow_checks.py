"""Work on produced batches, a slice of it per turn of the event loop, in order per partition."""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from stele.ids import PartitionId

J = TypeVar("J")


class Progress(enum.Enum):
    """How far a job is after a slice."""

    MORE = enum.auto()  # there are more slices
    WAITING = enum.auto()  # it goes on after ``resume``
    DONE = enum.auto()


class SlowChecks(Generic[J]):
    """Queues of jobs by partition. While any of them can go on, one slice runs in each turn of the
    loop, of one partition after the other: a large batch holds up its own partition only.

    No bound of its own: a job is a part of a request that its connection still has in flight.
    """

    def __init__(self, advance: Callable[[J], Progress]) -> None:
        """``advance`` does a slice of a job, says how far it is, and does not raise."""
        self._advance = advance
        # No queue is empty. The first is the one whose turn is next.
        self._queues: dict[PartitionId, deque[J]] = {}
        self._waiting: dict[PartitionId, deque[J]] = {}
        """The queues whose first job waits for others. No partition is in both."""

    def is_busy(self, partition: PartitionId) -> bool:
        """Whether a job added now would come behind others."""
        return partition in self._queues or partition in self._waiting

    def add(self, partition: PartitionId, job: J) -> None:
        if partition in self._waiting:
            self._waiting[partition].append(job)
            return
        self._begin()
        self._queues.setdefault(partition, deque()).append(job)

    def resume(self, partition: PartitionId) -> None:
        """The partition's first job need not wait any more."""
        self._begin()
        self._queues[partition] = self._waiting.pop(partition)

    def _begin(self) -> None:
        if not self._queues:
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        partition = next(iter(self._queues))
        queue = self._queues[partition]
        progress = self._advance(queue[0])
        if progress is Progress.DONE:
            queue.popleft()
        del self._queues[partition]
        if progress is Progress.WAITING:
            self._waiting[partition] = queue
        elif queue:
            self._queues[partition] = queue  # behind the others
        if self._queues:
            asyncio.get_running_loop().call_soon(self._turn)
