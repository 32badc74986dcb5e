"""Changed subscriptions of members of the classic protocol, which the broker reads itself."""

from __future__ import annotations

import random
import struct

from broker.coordinator.group.classic.subscription import subscribed_topics
from tests.fuzz.bytes import mutated
from tests.fuzz.cost import Meter


def _subscription(rng: random.Random) -> bytes:
    topics = [rng.choice(("t", "", "ü", "x" * 249)).encode() for _ in range(rng.randrange(5))]
    names = b"".join(struct.pack(">h", len(each)) + each for each in topics)
    return struct.pack(">hi", rng.randrange(-1, 5), len(topics)) + names + struct.pack(">i", -1)


class SubscriptionTarget:
    name = "subscriptions"
    examples = 3000

    def __init__(self, rng: random.Random) -> None:
        self._seeds = [_subscription(rng) for _ in range(50)]

    def draw(self, rng: random.Random) -> bytearray:
        return mutated(rng, rng.choice(self._seeds), self._seeds)

    def run(self, data: bytearray, meter: Meter) -> str:
        meter.request(len(data))
        try:
            with meter.turn():
                topics = subscribed_topics(bytes(data))
        except ValueError:
            return "refused"
        assert len(topics) <= len(data)
        return "read"


TARGET = SubscriptionTarget
