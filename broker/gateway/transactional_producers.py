"""The producers of streams that write in transactions, one for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from broker.gateway.refusals import stream_error
from stele.aio import Producer
from stele.config import ClientWorld, CompressionName
from stele.errors import ErrorCode

log = logging.getLogger(__name__)

PRODUCERS_MAX: Final = 100
BATCH_BYTES: Final = 64 * 1024
"""Our own client has larger batches: to complete one is one turn of the event loop."""
BUFFER_BYTES: Final = 8 * 1024 * 1024
DELIVERY_TIMEOUT_MS: Final = 30_000
LINGER_MS: Final = 2
TRANSACTION_TIMEOUT_MS: Final = 60_000
_END_S: Final = 5.0
"""How long the end of a stream waits for the end of its transaction."""


class TransactionalProducers:
    """A producer lives as long as its stream, and a little longer to end its transaction."""

    def __init__(self, world: ClientWorld, bootstrap_servers: Callable[[], str]) -> None:
        """``bootstrap_servers``: where brokers are now."""
        self._world = world
        self._bootstrap_servers = bootstrap_servers
        self._count = 0
        self._ending: dict[asyncio.Task[None], None] = {}

    def take(
        self, compression: CompressionName, transactional_id: str, transaction_timeout_ms: int
    ) -> Producer:
        """A producer for one stream, which gives it back by ``end``. Raises RpcError if there are
        too many, and ConfigError if no broker can be reached from here."""
        if self._count >= PRODUCERS_MAX:
            raise stream_error(
                ErrorCode.POLICY_VIOLATION,
                f"a broker writes for {PRODUCERS_MAX} transactional streams at most",
            )
        producer = Producer(
            self._bootstrap_servers(),
            world=self._world,
            client_id="stele-gateway",
            compression=compression,
            batch_size=BATCH_BYTES,
            buffer_memory=BUFFER_BYTES,
            linger_ms=LINGER_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=DELIVERY_TIMEOUT_MS,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms or TRANSACTION_TIMEOUT_MS,
            on_wait=lambda reason: log.info("publishing waits: %s", reason),
        )
        self._count += 1
        return producer

    def end(self, producer: Producer, close: Callable[[], Awaitable[None]]) -> None:
        """``close`` ends what is open. It has some seconds for it."""
        self._count -= 1
        task = asyncio.get_running_loop().create_task(_end(producer, close))
        self._ending[task] = None
        task.add_done_callback(lambda done: self._ending.pop(done, None))

    async def close(self) -> None:
        """Wait until all that were given back have ended."""
        await asyncio.gather(*self._ending)


async def _end(producer: Producer, close: Callable[[], Awaitable[None]]) -> None:
    """Without an answer of the coordinator, the transaction ends by its time-out."""
    try:
        async with asyncio.timeout(_END_S):
            await close()
    except TimeoutError:
        await producer.abort()
