"""Calls of the loop's thread back to the thread that waits for it."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from stele.consumer.group.listener import OnPartitions, RebalanceListener
from stele.errors import ClosedError, SteleError
from stele.ids import TopicPartition
from stele.sync.face import Face

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Step = Callable[[], None]
Work = Callable[[], Coroutine[Any, Any, Result]]


class Call:
    """One call that may take records from the client.

    A signal can end the call at any moment, also after the loop has taken records and before the
    caller has them. So the caller's thread says of each record that it was returned, and whoever
    calls next puts the others back.
    """

    __slots__ = (
        "count", "ended_by", "is_closing", "is_iterated", "is_over", "is_waited_for", "pending",
        "records", "returned", "steps", "task", "thread",
    )  # fmt: skip

    def __init__(self, *, is_closing: bool) -> None:
        self.is_closing = is_closing
        self.thread = threading.get_ident()
        # What the calling thread must do; None: the call is over.
        self.steps: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self.is_waited_for = True  # the caller's frame exists
        self.is_iterated = False  # the iterator returns its records one by one
        # The loop's thread sets these.
        self.task: asyncio.Task[object] | None = None
        self.is_over = False
        self.ended_by: SteleError | None = None  # it was cancelled, and raises this
        self.pending: asyncio.Future[None] | None = None  # a step that the caller is to do
        self.records: Sequence[Any] = ()
        self.count = 0
        # How many of the records the caller has. Its thread sets it directly before it returns.
        self.returned = 0

    @property
    def is_settled(self) -> bool:
        return self.is_over and self.returned == self.count

    @property
    def unreturned(self) -> Sequence[Any]:
        return self.records[self.returned :]

    def end(self, reason: SteleError | None = None) -> None:
        """On the loop: cancel it. A second time changes nothing, so that what it does at its end is
        not cut short."""
        if self.pending is not None and not self.pending.done():
            self.pending.cancel()
        if self.task is not None and not self.is_over and self.ended_by is None:
            self.ended_by = reason or ClosedError("the call was interrupted")
            self.task.cancel()


class CallsBack(Face):
    """A client that serves one call at a time, and whose user's functions run in the thread that
    called it. So they may call it as well, and use what belongs to that thread.

    A call that a signal has interrupted ends on the loop before the next one begins there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._call: Call | None = None  # the latest one that may have records of the client
        self._running: Call | None = None  # the one that the loop carries out
        self._alone = asyncio.Lock()
        self._wakeup: SteleError | None = None  # the next call that can be woken raises it

    # ------------------------------------------------------------------- the caller's thread

    def _call_back(self, work: Work[Result], *, is_closing: bool = False) -> tuple[Call, Result]:
        """Run a coroutine on the loop, and meanwhile what it has this thread do."""
        call = Call(is_closing=is_closing)
        self._call = call
        try:
            errand = self._errand(lambda: self._carry_out(call, work), lambda: call.steps.put(None))
            errand.begin()
            while (step := call.steps.get()) is not None:
                step()
            return call, errand.result()
        except BaseException:
            call.is_waited_for = False
            self._loop.call_soon_threadsafe(call.end)
            raise
        finally:
            call.is_waited_for = False

    def _settle(self) -> None:
        """Put back what the latest call took and did not return."""
        call = self._call
        if call is None or call.is_waited_for or call.is_settled:
            return
        self._run(lambda: self._settled(call, None))

    def _settle_alone(self) -> None:
        """As ``_settle``, for a call that takes records itself. Raises RuntimeError while another
        one does."""
        call = self._call
        if call is not None and call.is_waited_for:
            if call.thread == threading.get_ident():
                raise RuntimeError(
                    "a rebalance listener, or a signal handler within a call, cannot poll or "
                    "unsubscribe"
                )
            raise RuntimeError("another thread is in a call of this consumer: see wakeup()")
        self._settle()

    def _settle_to_close(self) -> None:
        """As ``_settle``, and end the call in which another thread, or this one below a signal
        handler, is at the moment. That call raises ClosedError."""
        call = self._call
        if call is None or call.is_settled or call.is_closing:
            return
        reason = ClosedError("the consumer was closed during the call")
        self._run(lambda: self._settled(call, reason))

    # ------------------------------------------------------------------------------ the loop

    async def _carry_out(self, call: Call, work: Work[Result]) -> Result:
        call.task = asyncio.current_task()
        try:
            async with self._alone:
                self._raise_wakeup(call)
                self._running = call
                result = await work()
                if isinstance(result, list):
                    call.records, call.count = result, len(result)
                return result
        except asyncio.CancelledError:
            if call.ended_by is not None:
                raise call.ended_by from None
            raise
        finally:
            call.is_over, call.task = True, None

    def _raise_wakeup(self, call: Call) -> None:
        reason = self._wakeup
        if reason is not None and not call.is_closing:
            self._wakeup = None
            raise reason

    def _wake(self, reason: SteleError) -> None:
        running = self._running
        if running is None or running.is_over or running.is_closing or running.ended_by is not None:
            self._wakeup = reason
        else:
            running.end(reason)

    async def _settled(self, call: Call, reason: SteleError | None) -> None:
        call.end(reason)
        async with self._alone:  # its end was waited for
            call.is_over = True
            records = call.unreturned
            call.returned = call.count
            self._put_back(records)

    def _put_back(self, records: Sequence[Any]) -> None:
        """On the loop: the caller did not get these."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------- listeners

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
            running = self._running
            assert running is not None, "rebalances happen only within calls"
            if not running.is_waited_for:
                log.warning("no rebalance listener is called: the thread that calls it is gone")
                return
            done: asyncio.Future[None] = self._loop.create_future()
            running.pending = done

            def step() -> None:
                try:
                    function(partitions)
                except BaseException as error:
                    self._loop.call_soon_threadsafe(_settle, done, error)
                    if not isinstance(error, Exception):
                        raise  # Ctrl-C
                else:
                    self._loop.call_soon_threadsafe(_settle, done, None)

            running.steps.put(step)
            try:
                await done
            finally:
                running.pending = None

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
