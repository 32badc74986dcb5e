"""The delivery that a synchronous producer returns for each record."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from stele.errors import ClosedError
from stele.producer.outcomes import BatchOutcome
from stele.records import RecordMetadata
from stele.sync.callbacks import Callbacks

OnDone = Callable[["Delivery"], object]


class Delivery:
    """The result of ``Producer.send``: the methods of a future at a fraction of its cost.

    It has no lock, which an interrupted thread could leave locked (``stele.sync.errand``). Whoever
    wants to hear of the end first enters a function, and then looks whether the end has come. The
    producer first sets the end, and then takes the functions out. So each function is called, and
    only by the one who took it out.
    """

    __slots__ = ("_callbacks", "_number", "_outcome")

    # Most deliveries have no such functions, and no entry. Each step on it is atomic.
    _on_done: ClassVar[dict[Delivery, deque[OnDone]]] = {}

    def __init__(self, callbacks: Callbacks | None = None) -> None:
        """``callbacks`` calls the functions; None: the caller of ``settle`` does."""
        self._callbacks = callbacks
        self._outcome: BatchOutcome | None = None
        self._number: int  # of the record in its batch; there is none before the outcome

    def done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self._outcome is not None

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait for the acknowledgement, at most ``timeout_s`` seconds (None: without a limit).

        Raises the record's error, or TimeoutError. Raises ClosedError in a process that was forked
        since the record was sent.
        """
        outcome = self._waited_for(timeout_s)
        if outcome.error is not None:
            raise outcome.error
        return outcome.metadata(self._number)

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait for the record's error, at most ``timeout_s`` seconds. None if it was acknowledged.
        Raises TimeoutError.
        """
        return self._waited_for(timeout_s).error

    def add_done_callback(self, function: OnDone) -> None:
        """Call a function with this delivery when it is done.

        The functions run on a thread that calls only the callbacks of this producer, one after the
        other. They may call any client. What they raise is logged. ``flush`` and ``close`` wait
        until the callbacks of what they waited for have been called.
        """
        self._enter(partial(self._call_user, function))

    def settle(self, outcome: BatchOutcome, number: int) -> None:
        """Only the producer calls this."""
        self._number = number
        self._outcome = outcome  # last: from here on other threads look at the number
        if Delivery._on_done:
            self._tell()

    def _call_user(self, function: OnDone, _: Delivery) -> None:
        if self._callbacks is None:
            function(self)
        else:
            self._callbacks.call(partial(function, self))

    def _enter(self, function: OnDone) -> None:
        functions = Delivery._on_done.setdefault(self, deque())
        functions.append(function)
        if self.done():
            Delivery._on_done.pop(self, None)
            self._call_all(functions)

    def _tell(self) -> None:
        self._call_all(Delivery._on_done.pop(self, None))

    def _call_all(self, functions: deque[OnDone] | None) -> None:
        while functions:
            try:
                function = functions.popleft()
            except IndexError:  # another thread was faster
                return
            function(self)

    def _waited_for(self, timeout_s: float | None) -> BatchOutcome:
        if not self.done():
            self._wait(timeout_s)
        assert self._outcome is not None
        return self._outcome

    def _wait(self, timeout_s: float | None) -> None:
        if self._callbacks is not None and self._callbacks.is_foreign:
            raise ClosedError(
                "the record was sent before this process was forked: its producer is in the other "
                "process, and only that hears of the acknowledgement"
            )
        told: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._enter(told.put)
        try:
            told.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"not acknowledged within {timeout_s} s") from None
