"""The user's functions that are called when something has ended."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

LONGEST_WAIT_S: Final = 30.0
"""How long ``flush`` and ``close`` wait for callbacks."""


class Callbacks:
    """One client's thread for them. It is started when there is something to call.

    They do not run on the loop: one that waits, or that calls a synchronous client, would stop all
    clients of the process. They run one after the other, in the order in which they became due.
    """

    def __init__(self) -> None:
        self._due: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], object]) -> None:
        """On the loop: call this soon. What it raises is logged."""
        self._due.put(function)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stele-callbacks", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until everything that was due at the call has been called. Not for the caller's own
        end: a callback does not wait for itself. A callback that does not return is left behind."""
        if self._thread is None or self.is_current:
            return
        over: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._due.put(lambda: over.put(None))
        try:
            over.get(timeout=LONGEST_WAIT_S)
        except queue.Empty:
            log.warning("a callback has not returned within %g s", LONGEST_WAIT_S)

    def stop(self) -> None:
        """The thread ends when it has called everything."""
        if self._thread is not None:
            self._thread = None
            self._due.put(None)

    def _run(self) -> None:
        while (function := self._due.get()) is not None:
            try:
                function()
            except BaseException:
                log.exception("a callback has failed; the client goes on")
