"""A client of Kafka's protocol that sends any bytes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any, Final

from stele.addresses import Address
from tests.fuzz.cost import Meter
from tests.support.one_node import HOST
from world.world import World

CHANGE_THE_CLUSTER: Final = frozenset({"UnregisterBroker", "UpdateFeatures"})
"""A changed request of these may be a sound one, after which another node would be needed."""

_SIZE: Final = struct.Struct(">i")
_ANSWERED_WITHIN_S: Final = 0.05


class Rude(asyncio.Protocol):
    """Sends bytes, and takes answers without looking at them."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.is_lost = False
        self.taken_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.taken_bytes += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def abort(self) -> None:
        self.transport.abort()

    def write(self, frame: bytes) -> None:
        self.transport.write(_SIZE.pack(len(frame)) + frame)


async def _connect(world: World, hello: Sequence[bytes]) -> Rude:
    rude = Rude()
    await world.network.connect(Address(HOST, 9092), lambda: rude)
    for frame in hello:
        rude.write(frame)
        await asyncio.sleep(_ANSWERED_WITHIN_S)
    return rude


async def send_all(
    world: World, frames: Sequence[bytes], meter: Meter, hello: Sequence[bytes] = ()
) -> list[Rude]:
    """Some requests share a connection. Returns the connections that may still wait for an answer.
    Two of three are broken off before. ``hello``: with which each connection begins."""
    rude: Rude | None = None
    left: list[Rude] = []
    for number, frame in enumerate(frames):
        if rude is None or rude.is_lost:
            rude = await _connect(world, hello)
        before = rude.taken_bytes
        meter.request(len(frame))
        rude.write(frame)
        await asyncio.sleep(_ANSWERED_WITHIN_S)
        if rude.taken_bytes == before and not rude.is_lost:
            if number % 3:
                rude.transport.abort()
            else:
                left.append(rude)
            rude = None
    return left if rude is None else [*left, rude]
