"""The producers that write for thin clients. All streams that write in the same way share one, so
records of many clients share batches and requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Unpack

from broker.gateway.refusals import stream_error
from stele.aio import Producer
from stele.config import Acks, ClientWorld, CompressionName, ProducerOptions
from stele.errors import ErrorCode

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 64 * 1024
"""A smaller batch than that of our own client: to complete it is one turn of the event loop."""
BUFFER_BYTES: Final = 32 * 1024 * 1024
"""Of each producer. There is one for each pair of acks and compression that is in use."""
DELIVERY_TIMEOUT_MS: Final = 30_000
LINGER_MS: Final = 2
TRANSACTIONAL_MAX: Final = 100
TRANSACTIONAL_BUFFER_BYTES: Final = 8 * 1024 * 1024
TRANSACTION_TIMEOUT_MS: Final = 60_000
_END_S: Final = 5.0
"""How long the end of a stream waits for the end of its transaction."""


class Way(NamedTuple):
    """How records are written."""

    acks: Acks = "all"
    compression: CompressionName = "none"


@dataclass(slots=True)
class _Shared:
    producer: Producer
    users: int = 0


class Producers:
    """A producer lives as long as somebody uses it, so that nothing of deleted topics is kept."""

    def __init__(self, world: ClientWorld, bootstrap_servers: Callable[[], str]) -> None:
        """``bootstrap_servers``: where brokers are now."""
        self._world = world
        self._bootstrap_servers = bootstrap_servers
        self._shared: dict[Way, _Shared] = {}
        self._closing: dict[asyncio.Task[None], None] = {}
        self._transactional = 0  # the number of producers with a transactional id

    def take(self, way: Way) -> Producer:
        """The producer for a user, who gives it back by ``give_back``. Raises ConfigError if no
        broker can be reached from here."""
        shared = self._shared.get(way)
        if shared is None or shared.producer.has_failed:
            shared = self._shared[way] = _Shared(self._made(way))
        shared.users += 1
        return shared.producer

    def give_back(self, way: Way, producer: Producer) -> None:
        shared = self._shared.get(way)
        if shared is not None and shared.producer is producer:
            shared.users -= 1
            if shared.users:
                return
            del self._shared[way]
        # A producer that has failed was replaced, and its users leave it one after the other.
        self._end(producer)

    def take_transactional(
        self, compression: CompressionName, transactional_id: str, transaction_timeout_ms: int
    ) -> Producer:
        """A producer for one user alone, who gives it back by ``end_transactional``. Raises
        RpcError if there are too many."""
        if self._transactional >= TRANSACTIONAL_MAX:
            raise stream_error(
                ErrorCode.POLICY_VIOLATION,
                f"a broker writes for {TRANSACTIONAL_MAX} transactional streams at most",
            )
        producer = self._made(
            Way("all", compression),
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms or TRANSACTION_TIMEOUT_MS,
            buffer_memory=TRANSACTIONAL_BUFFER_BYTES,
        )
        self._transactional += 1
        return producer

    def end_transactional(self, producer: Producer, close: Callable[[], Awaitable[None]]) -> None:
        """``close`` ends what is open. It has some seconds for it."""
        self._transactional -= 1
        self._spawn(_end_and_close(producer, close))

    async def close(self) -> None:
        for shared in self._shared.values():
            self._end(shared.producer)
        self._shared.clear()
        await asyncio.gather(*self._closing)

    def _made(self, way: Way, **options: Unpack[ProducerOptions]) -> Producer:
        common = ProducerOptions(
            client_id="stele-gateway",
            acks=way.acks,
            compression=way.compression,
            batch_size=BATCH_BYTES,
            buffer_memory=BUFFER_BYTES,
            linger_ms=LINGER_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=DELIVERY_TIMEOUT_MS,
            on_wait=lambda reason: log.info("publishing waits: %s", reason),
        )
        common.update(options)
        return Producer(self._bootstrap_servers(), world=self._world, **common)

    def _end(self, producer: Producer) -> None:
        self._spawn(producer.abort())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._closing[task] = None
        task.add_done_callback(lambda done: self._closing.pop(done, None))


async def _end_and_close(producer: Producer, close: Callable[[], Awaitable[None]]) -> None:
    """Without an answer of the coordinator, the transaction ends by its time-out."""
    try:
        async with asyncio.timeout(_END_S):
            await close()
    except TimeoutError:
        await producer.abort()
