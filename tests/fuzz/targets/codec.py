"""Changed requests of every API and version of Kafka's protocol, to the decoders."""

from __future__ import annotations

import random
from typing import Final

from tests.fuzz.codec import KINDS, Pool, check, check_cpu, check_memory
from tests.fuzz.cost import Meter

_MEASURED_FROM_BYTES: Final = 2000


class CodecTarget:
    """One changed request at a time."""

    name = "codec"
    examples = 300

    def __init__(self, rng: random.Random) -> None:
        self._pools = {kind: Pool(rng, *kind) for kind in KINDS}

    def draw(self, rng: random.Random) -> bytearray:
        return self._pools[rng.choice(KINDS)].changed(rng)

    def run(self, data: bytearray, _: Meter) -> str:
        outcome = check(data)
        if len(data) >= _MEASURED_FROM_BYTES:
            check_cpu(data)
            check_memory(data)
        return outcome


TARGET = CodecTarget
