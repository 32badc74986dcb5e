"""Changed requests of Kafka's protocol to a broker without logs."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Sequence
from typing import Final

from tests.fuzz.brokers import AT_ONCE, PATIENCE_S, Said, broker, check_alive
from tests.fuzz.codec import KINDS, Pool
from tests.fuzz.cost import Meter
from tests.support.broker_apis import Client
from tests.support.timing import run_virtual

_SIZE: Final = struct.Struct(">i")


def check_over_kafka(frames: Sequence[bytes], meter: Meter) -> int:
    """Returns how many requests were answered."""

    async def main() -> int:
        edges = await broker()
        answered = 0
        client: Client | None = None
        for frame in frames:
            if client is None or client.transport.closed:
                client = edges.client()
            meter.request(len(frame))
            client.send_bytes(_SIZE.pack(len(frame)) + frame)
            for _ in range(5):
                await asyncio.sleep(0)
            answered += client.transport.written.qsize() > 0
            if client.transport.written.empty():  # it may wait for something
                client.disconnect()
                client = None
            else:
                client.transport.written.get_nowait()
        await asyncio.sleep(PATIENCE_S)
        await check_alive(edges)
        return answered

    with Said() as said:
        count = run_virtual(main())
    said.check(3 * len(frames))
    return count


class KafkaTarget:
    name = "kafka"
    examples = 60

    def __init__(self, rng: random.Random) -> None:
        self._pools = {kind: Pool(rng, *kind) for kind in KINDS}

    def draw(self, rng: random.Random) -> list[bytes]:
        return [bytes(self._frame(rng)) for _ in range(AT_ONCE)]

    def _frame(self, rng: random.Random) -> bytes | bytearray:
        pool = self._pools[rng.choice(KINDS)]
        return pool.changed(rng) if rng.random() < 0.6 else rng.choice(pool.frames)

    def run(self, data: list[bytes], meter: Meter) -> str:
        return "answered" if check_over_kafka(data, meter) else "nothing answered"


TARGET = KafkaTarget
