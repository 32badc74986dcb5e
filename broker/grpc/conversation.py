"""Requests in, answers out as they become ready: one bidirectional stream of the Data service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.replication.types import Cancel
from stele.world import RpcError, Stream

Start = Callable[[bytes, Callable[[bytes], None]], Cancel | None]
"""Begin one request; the callback takes its answer, once, possibly before the return."""


class Conversation:
    """Reads on while requests wait, up to ``limit`` of them unanswered.

    Answers overtake each other: the client tells them apart by its correlation ids. At the
    limit the stream is not read, so a client that does not take its answers is held back.
    """

    def __init__(self, stream: Stream, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        # A request takes a slot and gives it back when its answer is sent. So `_answers` is
        # bounded, too.
        self._free = asyncio.Semaphore(limit)
        self._withdrawals: dict[int, Cancel] = {}
        self._answered: set[int] = set()
        self._broken: RpcError | None = None

    async def run(self, start: Start) -> None:
        """Serve until the client has ended its side and has every answer.

        Raises RpcError when the stream broke, or what ``start`` raised for a bad request.
        """
        sender = asyncio.get_running_loop().create_task(self._send_answers())
        try:
            await self._read(start)
            if self._broken is None:
                for _ in range(self._limit):  # every slot free again: every answer sent
                    await self._free.acquire()
            if self._broken is not None:
                raise self._broken
        finally:
            for _, withdraw in sorted(self._withdrawals.items()):
                withdraw()
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def _read(self, start: Start) -> None:
        number = 0
        while True:
            await self._free.acquire()
            payload = None if self._broken else await self._stream.receive()
            if payload is None:
                self._free.release()
                return
            number += 1
            self._begin(number, payload, start)

    def _begin(self, number: int, payload: bytes, start: Start) -> None:
        def reply(answer: bytes) -> None:
            if self._withdrawals.pop(number, None) is None:
                self._answered.add(number)
            self._answers.put_nowait(answer)

        withdraw = start(payload, reply)
        if number in self._answered:
            self._answered.discard(number)
        else:
            self._withdrawals[number] = withdraw or _nothing

    async def _send_answers(self) -> None:
        while True:
            answer = await self._answers.get()
            if self._broken is None:
                try:
                    await self._stream.send(answer)
                except RpcError as error:
                    self._broken = error
                    await self._stream.close()  # wakes the reader
            self._free.release()


def _nothing() -> None:
    """For a request that cannot be withdrawn. Nobody takes its answer."""
