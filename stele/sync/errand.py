"""Work that a thread has the loop do."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar, cast

Result = TypeVar("Result")


class Errand(Generic[Result]):
    """A coroutine that the loop carries out, while another thread waits for the outcome.

    A signal may end the wait at any moment. So the two threads share no lock that is taken by
    Python code: a ``threading.Condition`` or ``concurrent.futures.Future`` whose caller is
    interrupted while it takes the lock stays locked for ever, and the loop waits for it. A
    ``SimpleQueue`` is one step for the interpreter.
    """

    __slots__ = ("_error", "_loop", "_make", "_on_end", "_result", "_task", "_told")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make: Callable[[], Coroutine[Any, Any, Result]],
        on_end: Callable[[], object] | None = None,
    ) -> None:
        """``make`` is called on the loop, so that no coroutine is left behind if a signal comes
        before. ``on_end`` is called on the loop; without it, ``run`` waits for the end."""
        self._loop = loop
        self._make = make
        self._told: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._on_end = on_end or partial(self._told.put, None)
        # The loop's thread sets these. The task does not outlive its end there.
        self._task: asyncio.Task[Result] | None = None
        self._result: Result | None = None
        self._error: BaseException | None = None

    def run(self) -> Result:
        """Have it done, and wait. If a signal ends the wait, it is cancelled."""
        try:
            self.begin()
            self._told.get()
            return self.result()
        except BaseException:
            self.cancel()
            raise

    def begin(self) -> None:
        self._loop.call_soon_threadsafe(self._begin)

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)

    def result(self) -> Result:
        """After the end. Raises what the coroutine has raised."""
        if self._error is not None:
            raise self._error
        return cast(Result, self._result)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._make())
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Result]) -> None:
        self._task = None
        if task.cancelled():
            self._error = asyncio.CancelledError()
        elif (error := task.exception()) is not None:
            self._error = error
        else:
            self._result = task.result()
        self._on_end()

    def _cancel(self) -> None:
        if self._task is not None:  # else it is over, or the signal came before it was begun
            self._task.cancel()
