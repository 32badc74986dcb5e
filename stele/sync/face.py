"""The one background thread of all synchronous clients, and their common base."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from stele.errors import ClosedError

Result = TypeVar("Result")


class _LoopThread:
    """The event loop of all clients of the process. The first client starts it.

    It runs until the process ends, because gRPC's poller stays bound to its first loop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = uvloop.new_event_loop()
                thread = threading.Thread(
                    target=self._run, args=(self._loop,), name="stele-client", daemon=True
                )
                thread.start()
                atexit.register(self._stop, self._loop, thread)
            return self._loop

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    @staticmethod
    def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        # Ctrl-C may come while the process ends. The daemon thread need not end.
        with contextlib.suppress(KeyboardInterrupt):
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=1.0)


_shared = _LoopThread()


class Face:
    """The common base of the synchronous clients."""

    def __init__(self) -> None:
        self._loop = _shared.get()
        self._is_open = True

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and wait for it. Ctrl-C cancels it."""
        future = self._begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _begin(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a coroutine on the loop."""
        if not self._is_open:
            work.close()
            raise ClosedError("the client is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _do(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a plain function on the loop and wait."""

        async def call() -> Result:
            return function(*arguments)

        return self._run(call())

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
