"""A stream of a thin client that keeps the client's quota by flow control.

gRPC has no place for a time to wait. So a Publish stream reads its next message when the time is
over, and a Subscribe stream sends its next one then. A client above its quota notices that it may
not send, or that nothing comes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from broker.service.quotas import EXEMPT, BrokerQuotas, log_throttle
from metadata.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from runtime.authorization.caller import Caller
from stele.world import Stream


class PacedStream:
    """Bytes of messages count: of those received for ``producer_byte_rate``, or of those sent for
    ``consumer_byte_rate``. ``close`` ends a wait."""

    def __init__(
        self, stream: Stream, quotas: BrokerQuotas, caller: Caller, *, counts_sent: bool
    ) -> None:
        self._stream = stream
        self._quotas = quotas
        self._caller = caller
        self._counts_sent = counts_sent
        self._key = CONSUMER_BYTE_RATE if counts_sent else PRODUCER_BYTE_RATE
        self._next_at_s = 0.0  # the earliest time of the next message that counts
        self._is_closed = asyncio.Event()

    async def send(self, message: bytes) -> None:
        if not self._counts_sent:
            await self._stream.send(message)
            return
        await self._wait()
        await self._stream.send(message)
        self._count(len(message))

    async def receive(self) -> bytes | None:
        if self._counts_sent:
            return await self._stream.receive()
        await self._wait()
        message = await self._stream.receive()
        if message is not None:
            self._count(len(message))
        return message

    async def close(self) -> None:
        self._is_closed.set()
        await self._stream.close()

    async def _wait(self) -> None:
        wait_s = self._next_at_s - self._quotas.now_s()
        if wait_s <= 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._is_closed.wait()

    def _count(self, size_bytes: int) -> None:
        manager = self._quotas.manager
        if manager is None or (payer := self._quotas.payer(self._caller)) is EXEMPT:
            return
        now_s = self._quotas.now_s()
        throttle = manager.record(self._key, payer, size_bytes, now_s)
        if throttle is not None:
            log_throttle(payer, throttle)
            self._next_at_s = now_s + throttle.seconds
