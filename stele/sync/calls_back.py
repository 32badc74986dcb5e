"""Calls of the loop's thread back to the thread that waits for it."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from stele.consumer.group.listener import OnPartitions, RebalanceListener
from stele.ids import TopicPartition
from stele.sync.face import Face

Result = TypeVar("Result")
Work = Callable[[], None]


class CallsBack(Face):
    """A client whose user's functions run in the thread that called the client, so that they may
    call it as well, and use what belongs to that thread."""

    def __init__(self) -> None:
        super().__init__()
        # What the calling thread must do; None: the call is over.
        self._work: queue.SimpleQueue[Work | None] | None = None

    def _run_calling_back(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop, and meanwhile what it has this thread do. Ctrl-C cancels
        it."""
        if self._work is not None:
            work.close()
            raise RuntimeError("a rebalance listener cannot poll, unsubscribe or close")
        to_do: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._work = to_do
        try:
            future = self._begin(work)
            future.add_done_callback(lambda _: to_do.put(None))
            try:
                while (step := to_do.get()) is not None:
                    step()
                return future.result()
            except BaseException:
                future.cancel()
                raise
        finally:
            self._work = None

    def _called_by_the_caller(self, listener: RebalanceListener) -> RebalanceListener:
        return RebalanceListener(
            self._handed_over(listener.on_partitions_assigned),
            self._handed_over(listener.on_partitions_revoked),
            self._handed_over(listener.on_partitions_lost),
        )

    def _handed_over(self, function: OnPartitions | None) -> OnPartitions | None:
        if function is None:
            return None

        async def call(partitions: list[TopicPartition]) -> None:
            to_do = self._work
            assert to_do is not None, "rebalances happen only within calls"
            done = self._loop.create_future()

            def step() -> None:
                try:
                    function(partitions)
                except BaseException as error:
                    self._loop.call_soon_threadsafe(_settle, done, error)
                    if not isinstance(error, Exception):
                        raise  # Ctrl-C
                else:
                    self._loop.call_soon_threadsafe(_settle, done, None)

            to_do.put(step)
            await done

        return call


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    elif isinstance(error, Exception):
        done.set_exception(error)
    else:
        done.cancel()
