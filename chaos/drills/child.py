"""A process of a drill that prints lines of JSON, and can be killed."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from stele.errors import SteleError

_STOP_S: Final = 10.0


class Child:
    """``python -m MODULE``. ``take`` gets what each line says. A line without an end is of a
    process that was killed while it wrote, and counts for nothing."""

    def __init__(self, module: str, take: Callable[[Any], None]) -> None:
        self._module = module
        self._take = take
        self._process: asyncio.subprocess.Process | None = None
        self._taking: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, *arguments: str) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=1 << 20,
            start_new_session=True,
        )
        self._taking = asyncio.create_task(self._take_lines(self._process))

    async def kill(self) -> None:
        """SIGKILL: it tells nobody, but its connections end."""
        await self._end(signal.SIGKILL, _STOP_S)

    async def stop(self, within_s: float = _STOP_S) -> None:
        """SIGTERM: it ends in good order, or is killed when the time is over."""
        await self._end(signal.SIGTERM, within_s)

    def pause(self) -> None:
        """Raises SteleError if it has ended."""
        if self._process is None or self._process.returncode is not None:
            raise SteleError(f"{self._module} has ended and cannot be paused")
        self._process.send_signal(signal.SIGSTOP)

    async def _end(self, number: signal.Signals, within_s: float) -> None:
        """Its output is complete when this returns. If a signal ends a drill, all its tasks are
        cancelled and its pipes are not read any more. The process ends nevertheless."""
        if self._process is None or self._taking is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(number)
            try:
                await asyncio.wait_for(self._process.wait(), within_s)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        await asyncio.wait([self._taking])
        if not self._taking.cancelled():
            self._taking.result()

    async def _take_lines(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if not line.endswith(b"\n"):
                return
            self._take(json.loads(line))
