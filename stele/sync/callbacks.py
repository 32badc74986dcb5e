"""The user's functions that are called when something has ended."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

LONGEST_WAIT_S: Final = 30.0
"""How long ``flush`` and ``close`` wait for callbacks."""
_NAME: Final = "stele-callbacks"


class Callbacks:
    """One client's thread for them. It is started when there is something to call.

    They do not run on the loop: one that waits, or that calls a synchronous client, would stop all
    clients of the process. They run one after the other, in the order in which they became due.
    """

    def __init__(self) -> None:
        self._due: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self._process_id = os.getpid()
        self._starting = threading.Lock()  # of C: an interrupted thread gives it back

    @property
    def is_foreign(self) -> bool:
        """Whether its client belongs to the process that has forked this one."""
        return os.getpid() != self._process_id

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], object]) -> None:
        """Call this soon. What it raises is logged. After ``stop`` a thread is started for it
        alone."""
        if self._is_stopped:
            threading.Thread(target=_call, args=(function,), name=_NAME, daemon=True).start()
            return
        self._due.put(function)
        if self._thread is None:
            with self._starting:  # the loop and a caller's thread may both come here
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=_NAME, daemon=True)
                    thread.start()
                    self._thread = thread

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
        self._is_stopped = True
        if self._thread is not None:
            self._thread = None
            self._due.put(None)

    def _run(self) -> None:
        while (function := self._due.get()) is not None:
            _call(function)


def _call(function: Callable[[], object]) -> None:
    try:
        function()
    except (Exception, SystemExit):
        log.exception("a callback has failed; the client goes on")
