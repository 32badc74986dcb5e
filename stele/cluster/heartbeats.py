"""The heartbeats of a member of a group. They go on while the application handles records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from stele.backoff import Backoff
from stele.errors import ApiError, SteleError, UnreachableError

log = logging.getLogger(__name__)

FIRST_INTERVAL_S: Final = 1.0
"""Between heartbeats, until the coordinator gives the group's interval."""


class Heartbeats:
    """One task sends them.

    ``turn`` sends one if it is due, and returns the pause until the next turn: None if it has sent
    none. If a heartbeat fails and may be repeated, ``on_failure`` is called, and the next turn
    comes after a growing pause. After any other failure ``on_end`` is called, and there are no more
    turns. ``owner`` is the client's name in messages.
    """

    def __init__(
        self,
        owner: str,
        backoff: Backoff,
        turn: Callable[[], Awaitable[float | None]],
        *,
        on_failure: Callable[[SteleError], None],
        on_end: Callable[[SteleError], None],
    ) -> None:
        self.interval_s = FIRST_INTERVAL_S
        self._owner = owner
        self._backoff = backoff
        self._turn = turn
        self._on_failure = on_failure
        self._on_end = on_end
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """There is something to report: the next turn comes at once."""
        self._wake.set()

    def start(self) -> None:
        """Begin, unless they have begun. After an end they begin again only if
        ``forget`` or ``stop`` was called."""
        if self._task is None:
            self._backoff.reset()
            self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def has_begun(self) -> bool:
        return self._task is not None

    def begin_again(self) -> None:
        """Begin after a growing pause. It grows until a heartbeat succeeds, and ``wake`` does not
        end it."""
        if self._task is not None:
            self._task.cancel()
        pause_s = self._backoff.next_s()
        self._task = asyncio.get_running_loop().create_task(self._run(pause_s))

    def forget(self) -> None:
        """They end, unless they have, and may begin again."""
        if self._task is not None:
            self._task.cancel()
        self._task = None

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, pause_s: float = 0.0) -> None:
        await asyncio.sleep(pause_s)
        try:
            await self._beat()
        except SteleError as error:
            self._on_end(error)
        except Exception as error:
            log.error("the %s's group stops because of a bug in it", self._owner, exc_info=error)
            self._on_end(SteleError(f"a bug in the {self._owner}, see the log: {error!r}"))

    async def _beat(self) -> None:
        while True:
            self._wake.clear()
            try:
                pause_s = await self._turn()
                if pause_s is None:
                    pause_s = self.interval_s
                else:
                    self._backoff.reset()
            except UnreachableError as error:
                pause_s = self._failed(error)
            except ApiError as error:
                if not error.code.retriable:
                    raise
                pause_s = self._failed(error)
            await self._pause(pause_s)

    def _failed(self, error: SteleError) -> float:
        self._on_failure(error)
        return min(self._backoff.next_s(), self.interval_s)

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
        except TimeoutError:
            return
