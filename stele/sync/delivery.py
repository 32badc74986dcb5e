"""What a synchronous producer gives for each record."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stele.records import RecordMetadata


class Delivery:
    """The result of ``Producer.send``: the methods of a future at a fraction of its cost.

    One lock serves all deliveries. It is held for a few instructions at a time.
    """

    __slots__ = ("_callbacks", "_error", "_metadata")

    _resolved = threading.Condition(threading.Lock())
    _waiters = 0  # threads in ``result`` or ``exception``; guarded by the lock

    def __init__(self) -> None:
        self._metadata: RecordMetadata | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Delivery], object]] | None = None

    def done(self) -> bool:
        return self._metadata is not None or self._error is not None

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait for the acknowledgement. Raises the record's error, or TimeoutError."""
        self._wait(timeout_s)
        if self._error is not None:
            raise self._error
        assert self._metadata is not None
        return self._metadata

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait for the record's error; None if it was acknowledged. Raises TimeoutError."""
        self._wait(timeout_s)
        return self._error

    def add_done_callback(self, function: Callable[[Delivery], object]) -> None:
        """Call it with this delivery once done: on the client's thread, or here if it is done."""
        with Delivery._resolved:
            if not self.done():
                self._callbacks = [*(self._callbacks or ()), function]
                return
        function(self)

    def set_result(self, metadata: RecordMetadata) -> None:
        """Only the producer calls this."""
        self._resolve(metadata, None)

    def set_exception(self, error: BaseException) -> None:
        """Only the producer calls this."""
        self._resolve(None, error)

    def _resolve(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        with Delivery._resolved:
            self._metadata, self._error = metadata, error
            callbacks, self._callbacks = self._callbacks, None
            if Delivery._waiters:
                Delivery._resolved.notify_all()
        for function in callbacks or ():
            function(self)

    def _wait(self, timeout_s: float | None) -> None:
        if self.done():
            return
        with Delivery._resolved:
            Delivery._waiters += 1
            try:
                if not Delivery._resolved.wait_for(self.done, timeout_s):
                    raise TimeoutError(f"not acknowledged within {timeout_s} s")
            finally:
                Delivery._waiters -= 1
