"""Slow networks for nodes on this machine: a relay in front of a listener delays what goes through.

A node that advertises the relay's port is reached by clients and other nodes through the relay.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

_CHUNK: Final = 64 << 10


class Relay:
    """Passes bytes on between a port of its own and a target on this machine, late by ``delay_s``
    in each direction. What was read before a change of the delay is late by the former one."""

    def __init__(self, port: int, target_port: int) -> None:
        self.port = port
        self.delay_s = 0.0
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises OSError if the port is taken."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(reader, target[1]))
                both.create_task(self._pass_on(target[0], writer))
        except* OSError:
            pass  # one of both ends has gone away
        finally:
            writer.close()
            target[1].close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reading does not wait for the delay of what was read before."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def write() -> None:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(due - loop.time())
                if not data:
                    break
                writer.write(data)
                await writer.drain()
            with suppress(OSError, RuntimeError):
                writer.write_eof()

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            data = b"-"
            while data:
                data = await reader.read(_CHUNK)
                queue.put_nowait((loop.time() + self.delay_s, data))

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
