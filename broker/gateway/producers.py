"""The producers that write for thin clients. All streams that write in the same way share one, so
records of many clients share batches and requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from stele.aio import Producer
from stele.config import Acks, ClientWorld, CompressionName

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 64 * 1024
"""A smaller batch than that of our own client: to complete it is one turn of the event loop."""
BUFFER_BYTES: Final = 32 * 1024 * 1024
"""Of each producer. There is one for each pair of acks and compression that is in use."""
DELIVERY_TIMEOUT_MS: Final = 30_000
LINGER_MS: Final = 2


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

    async def close(self) -> None:
        for shared in self._shared.values():
            self._end(shared.producer)
        self._shared.clear()
        await asyncio.gather(*self._closing)

    def _made(self, way: Way) -> Producer:
        return Producer(
            self._bootstrap_servers(),
            world=self._world,
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

    def _end(self, producer: Producer) -> None:
        task = asyncio.get_running_loop().create_task(producer.abort())
        self._closing[task] = None
        task.add_done_callback(lambda done: self._closing.pop(done, None))
