"""Changed requests on the connections of a whole simulated node."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from tests.fuzz.codec import KINDS, Pool
from tests.fuzz.cost import Meter
from tests.fuzz.node import check_node
from tests.fuzz.rude import CHANGE_THE_CLUSTER, send_all

AT_ONCE: Final = 150
"""Requests to one node."""


class LiveTarget:
    name = "live"
    examples = 10

    def __init__(self, rng: random.Random) -> None:
        kinds = [kind for kind in KINDS if kind[0] not in CHANGE_THE_CLUSTER]
        self._pools = [Pool(rng, *kind) for kind in kinds]

    def draw(self, rng: random.Random) -> list[bytes]:
        return [self._frame(rng) for _ in range(AT_ONCE)]

    def _frame(self, rng: random.Random) -> bytes:
        pool = rng.choice(self._pools)
        return bytes(pool.changed(rng)) if rng.random() < 0.8 else rng.choice(pool.frames)

    def run(self, data: Sequence[bytes], meter: Meter) -> str:
        check_node(lambda world: send_all(world, data, meter), len(data))
        return "went on"


TARGET = LiveTarget
