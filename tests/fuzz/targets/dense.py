"""The largest requests of every API: as many elements as an array may have, each its own."""

from __future__ import annotations

import random
from typing import Any, Final

from stele.wire import kafka as wire
from stele.wire.kafka.primitives import REQUEST_ELEMENTS_MAX
from tests.fuzz.codec import KINDS
from tests.fuzz.cost import Meter
from tests.fuzz.node import check_node
from tests.fuzz.rude import CHANGE_THE_CLUSTER, send_all
from tests.support.dense_requests import distinct_requests

_COUNTS: Final = (1000, 10_000, REQUEST_ELEMENTS_MAX - 2)  # with the arrays that it may stand in
_MAKES_LOGS: Final = frozenset({"CreateTopics"})
"""A node makes a log for each element, which takes the simulator long."""


class DenseTarget:
    """One request at a time, to a node that others use before and after it."""

    name = "dense"
    examples = 4

    def __init__(self, rng: random.Random) -> None:
        self._kinds = [kind for kind in KINDS if kind[0] not in CHANGE_THE_CLUSTER]

    def draw(self, rng: random.Random) -> list[bytes]:
        while True:
            name, version = rng.choice(self._kinds)
            count = min(_COUNTS) if name in _MAKES_LOGS else rng.choice(_COUNTS)
            requests = list(distinct_requests(name, version, count))
            if not requests:
                continue
            _, api, message = rng.choice(requests)
            try:
                return [_frame(api, version, message)]
            except wire.UnencodableMessageError:
                continue  # elements of one byte have not so many values

    def run(self, data: list[bytes], meter: Meter) -> str:
        check_node(lambda world: send_all(world, data, meter), len(data))
        return "went on"


def _frame(api: wire.Api[Any, Any], version: int, message: Any) -> bytes:
    return b"".join(wire.encode_request(api, version, 1, "dense", message))[wire.SIZE_BYTES :]


TARGET = DenseTarget
