"""The one background thread of all synchronous clients, and their common base."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from stele.errors import ClosedError
from stele.sync.errand import Errand

log = logging.getLogger("stele.client")

Result = TypeVar("Result")


class _LoopThread:
    """The event loop of all clients of the process. The first client starts it.

    It runs until the process ends, because gRPC's poller stays bound to its first loop.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """A child process has no thread but the one that forked, and begins anew."""
        self._lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._ident: int | None = None

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the loop's thread, which must not wait for itself."""
        return threading.get_ident() == self._ident

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self.loop is None:
                loop = uvloop.new_event_loop()
                thread = threading.Thread(
                    target=self._run, args=(loop,), name="stele-client", daemon=True
                )
                thread.start()
                atexit.register(self._stop, loop, thread, os.getpid())
                self.loop = loop
            return self.loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ident = threading.get_ident()
        asyncio.set_event_loop(loop)
        while True:
            try:
                loop.run_forever()
                return
            except BaseException:  # SystemExit of one client's task must not end all clients
                log.exception("a task of a client ended with an error; the clients' thread goes on")

    @staticmethod
    def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, process_id: int) -> None:
        if os.getpid() != process_id:
            return
        # Ctrl-C may come while the process ends. The daemon thread need not end.
        with contextlib.suppress(KeyboardInterrupt):
            loop.call_soon_threadsafe(_end_tasks, loop)
            thread.join(timeout=1.0)


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Stop the loop once what interrupted calls and open clients have left behind has ended."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    ended = asyncio.gather(*tasks, return_exceptions=True)
    ended.add_done_callback(lambda _: loop.stop())


shared = _LoopThread()
os.register_at_fork(after_in_child=shared.forget)


class Face:
    """The common base of the synchronous clients."""

    def __init__(self) -> None:
        self._loop = shared.get()
        self._is_open = True

    @property
    def _is_foreign(self) -> bool:
        """Whether it belongs to the process that has forked this one."""
        return self._loop is not shared.loop

    def _run(self, make: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine on the loop and wait for it. Ctrl-C cancels it."""
        return self._errand(make).run()

    def _errand(
        self,
        make: Callable[[], Coroutine[Any, Any, Result]],
        on_end: Callable[[], object] | None = None,
    ) -> Errand[Result]:
        """A coroutine that can be run on the loop. It is made there."""
        self._check_usable()
        return Errand(self._loop, make, on_end)

    def _check_usable(self) -> None:
        if self._is_foreign:
            raise ClosedError(
                "the client was made before this process was forked: make another one here"
            )
        if not self._is_open:
            raise ClosedError("the client is closed")
        if shared.is_current:
            raise RuntimeError(
                "a function that runs on the clients' own thread (on_wait, on_truncation, "
                "on_acknowledged, the callbacks of a TopicView) cannot call synchronous clients: "
                "all of them would wait for it. Hand the work to another thread"
            )

    def _do(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a plain function on the loop and wait."""

        async def call() -> Result:
            return function(*arguments)

        return self._run(call)

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
