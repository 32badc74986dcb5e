"""Changed contents of requests that a broker reads itself: record batches and subscriptions."""

from __future__ import annotations

import random
import struct
import time
from typing import Final

from broker.coordinator.group.classic.subscription import subscribed_topics
from stele.wire import batch as wire
from stele.wire.batch_errors import BatchError
from stele.wire.compression import Compression
from stele.wire.record_check import RecordCheck
from tests.fuzz.bytes import mutated

_CODECS: Final = list(Compression)
_TURN_CPU_S: Final = 0.1


def _batch(rng: random.Random) -> bytes:
    builder = wire.BatchBuilder()
    for _ in range(rng.choice((1, 2, 20))):
        key = rng.choice((None, b"", b"k", rng.randbytes(20)))
        value = rng.choice((None, b"", b"v" * 300, rng.randbytes(100)))
        headers = [("h", rng.choice((None, b"x")))] * rng.choice((0, 0, 1, 60))
        builder.append(key, value, timestamp_ms=rng.choice((-1, 0, 10**12)), headers=headers)
    return bytes(builder.build(rng.choice(_CODECS)))


def check_batch(data: bytearray) -> str:
    """Its records are checked as those of a producer; only BatchError may come of it."""
    try:
        header = wire.validate_produced(data, len(data))
        slices = iter(
            RecordCheck(
                header.compression, memoryview(data)[wire.HEADER_SIZE :], header.record_count
            )
        )
        while True:
            began = time.thread_time()
            try:
                next(slices)
            except StopIteration:
                return "sound"
            finally:
                took = time.thread_time() - began
                assert took < _TURN_CPU_S, f"{took:.3f} s in one turn"
    except BatchError as error:
        return error.code.name


class BatchTarget:
    """Batches whose length and CRC are right, so that what is in them is read."""

    name = "batches"

    def __init__(self, rng: random.Random) -> None:
        self._batches = [_batch(rng) for _ in range(100)]

    def draw(self, rng: random.Random) -> bytearray:
        data = mutated(rng, rng.choice(self._batches), self._batches)
        if len(data) >= wire.HEADER_SIZE and rng.random() < 0.95:
            struct.pack_into(">i", data, 8, len(data) - wire.PREFIX_SIZE)
            data[16] = 2  # the magic
            struct.pack_into(">I", data, 17, wire.compute_crc(data, 0, len(data)))
        return data

    def check(self, data: bytearray) -> str:
        return check_batch(data)


def _subscription(rng: random.Random) -> bytes:
    topics = [rng.choice(("t", "", "ü", "x" * 249)).encode() for _ in range(rng.randrange(5))]
    names = b"".join(struct.pack(">h", len(each)) + each for each in topics)
    return struct.pack(">hi", rng.randrange(-1, 5), len(topics)) + names + struct.pack(">i", -1)


class SubscriptionTarget:
    """The topics that a member of the classic protocol subscribes to."""

    name = "subscriptions"

    def __init__(self, rng: random.Random) -> None:
        self._seeds = [_subscription(rng) for _ in range(50)]

    def draw(self, rng: random.Random) -> bytearray:
        return mutated(rng, rng.choice(self._seeds), self._seeds)

    def check(self, data: bytearray) -> str:
        try:
            topics = subscribed_topics(bytes(data))
        except ValueError:
            return "refused"
        assert len(topics) <= len(data)
        return "read"
