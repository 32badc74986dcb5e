"""Changed record batches of producers."""

from __future__ import annotations

import random
import struct
from typing import Final

from stele.wire import batch as wire
from stele.wire.batch_errors import BatchError
from stele.wire.compression import Compression
from stele.wire.produced import validate_produced
from stele.wire.record_check import RecordCheck
from tests.fuzz.bytes import mutated
from tests.fuzz.cost import Meter

_CODECS: Final = list(Compression)


def _batch(rng: random.Random) -> bytes:
    builder = wire.BatchBuilder()
    for _ in range(rng.choice((1, 2, 20))):
        key = rng.choice((None, b"", b"k", rng.randbytes(20)))
        value = rng.choice((None, b"", b"v" * 300, rng.randbytes(100)))
        headers = [("h", rng.choice((None, b"x")))] * rng.choice((0, 0, 1, 60))
        builder.append(key, value, timestamp_ms=rng.choice((-1, 0, 10**12)), headers=headers)
    return bytes(builder.build(rng.choice(_CODECS)))


class BatchTarget:
    """Batches whose length and CRC are right, so that what is in them is read."""

    name = "batches"
    examples = 3000

    def __init__(self, rng: random.Random) -> None:
        self._batches = [_batch(rng) for _ in range(100)]

    def draw(self, rng: random.Random) -> bytearray:
        data = mutated(rng, rng.choice(self._batches), self._batches)
        if len(data) >= wire.HEADER_SIZE and rng.random() < 0.95:
            struct.pack_into(">i", data, 8, len(data) - wire.PREFIX_SIZE)
            data[16] = 2  # the magic
            struct.pack_into(">I", data, 17, wire.compute_crc(data, 0, len(data)))
        return data

    def run(self, data: bytearray, meter: Meter) -> str:
        """The records are checked as if a producer had sent them. Only BatchError may be raised."""
        meter.request(len(data))
        try:
            header = validate_produced(data, len(data))
            records = memoryview(data)[wire.HEADER_SIZE :]
            slices = iter(RecordCheck(header.compression, records, header.record_count))
            while True:
                with meter.turn():
                    try:
                        next(slices)
                    except StopIteration:
                        return "sound"
        except BatchError as error:
            return error.code.name


TARGET = BatchTarget
