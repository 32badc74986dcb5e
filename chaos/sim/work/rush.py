"""A client that sends many requests at once on several connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from chaos.sim.work.load import Part
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from chaos.sim.world.clock import EPOCH_MS
from stele.addresses import Address
from stele.wire import kafka
from stele.wire.batch import BatchBuilder
from stele.wire.kafka.messages import produce

_CONNECTIONS: Final = 3
_AT_ONCE: Final = (9, 60)
"""Requests: more than a connection takes in one go."""
_REST_S: Final = (0.2, 2.0)
_TIMEOUT_S: Final = 20.0
_VERSION: Final = 9


def _batch() -> bytearray:
    builder = BatchBuilder()
    builder.append(None, b"x", timestamp_ms=EPOCH_MS)
    return builder.build()


_PARTITION: Final = produce.PartitionProduceData(0, _batch())


@dataclass(frozen=True, slots=True)
class RushLoad(Part):
    """Whether there is such a client."""

    label: ClassVar = "rush"

    connections: int = 0

    @classmethod
    def draw(cls, rng: random.Random) -> RushLoad:
        """A quarter of the runs have one."""
        return cls(_CONNECTIONS if rng.random() < 0.25 else 0)

    @property
    def is_there(self) -> bool:
        return self.connections > 0


class Rush(Work):
    """Many requests at once. ``chaos.sim.laws.turns`` judges whether each request is taken, also
    the requests of other clients."""

    name = "rush"
    load = RushLoad

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._connections = site.load.part(RushLoad).connections
        self._brokers = sorted(site.cluster.brokers)

    def start(self) -> list[Coroutine[Any, Any, None]]:
        return [self._run(number) for number in range(self._connections)]

    async def _run(self, number: int) -> None:
        rng = self.site.rngs.of(f"rush: connection {number}")
        network = self.site.cluster.client_world.network
        while not self.site.is_done():
            host = self.site.cluster.brokers[rng.choice(self._brokers)].host
            client = _Rusher()
            try:
                async with asyncio.timeout(5.0):
                    await network.connect(Address(host, 9092), partial(_same, client))
                for _ in range(rng.randint(1, 10)):
                    async with asyncio.timeout(_TIMEOUT_S):
                        await client.rush(rng.randint(*_AT_ONCE))
                    await asyncio.sleep(rng.uniform(*_REST_S))
            except OSError:
                self.counts["connections of a rush that were lost"] += 1
            finally:
                client.close()
                self.counts["requests of a rush"] += client.answered
            await asyncio.sleep(rng.uniform(*_REST_S))


def _same(protocol: asyncio.Protocol) -> asyncio.Protocol:
    return protocol


class _Rusher(asyncio.Protocol):
    """A connection whose requests leave with one write. So they arrive together."""

    def __init__(self) -> None:
        self.answered = 0
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._awaited = 0
        self._done: asyncio.Future[None] | None = None

    async def rush(self, count: int) -> None:
        """Send so many requests and wait for their answers. Raises OSError."""
        if self._transport is None:
            raise ConnectionError
        # Requests of most other kinds are taken one after the other. The topic does not exist.
        request = produce.ProduceRequest(
            acks=1,
            timeout_ms=3000,
            topic_data=[produce.TopicProduceData("rush", partition_data=[_PARTITION])],
        )
        frames = [
            b"".join(kafka.encode_request(produce.API, _VERSION, each, "rush", request))
            for each in range(count)
        ]
        self._done = asyncio.get_running_loop().create_future()
        self._awaited = count
        self._transport.write(b"".join(frames))
        await self._done

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError())

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= kafka.SIZE_BYTES:
            end = kafka.SIZE_BYTES + int.from_bytes(received[: kafka.SIZE_BYTES])
            if len(received) < end:
                return
            del received[:end]
            self.answered += 1
            self._awaited -= 1
            if not self._awaited and self._done is not None and not self._done.done():
                self._done.set_result(None)
