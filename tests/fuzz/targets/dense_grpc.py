"""The largest calls of every method of gRPC: as many elements as a list may have, each its own."""

from __future__ import annotations

import random
from typing import Final

from tests.fuzz.cost import Meter
from tests.fuzz.grpc_methods import METHODS
from tests.fuzz.node import check_node
from tests.fuzz.targets.live_grpc import CHANGE_THE_CLUSTER, GRPC_PORT
from tests.fuzz.thin import Conversation, send_all
from tests.support.dense_messages import fill_list, lists_of

_COUNTS: Final = (1000, 10_000, 65_000)
MAKES_LOGS: Final = frozenset({"/stele.v1.Admin/CreateTopics", "/stele.v1.Admin/CreatePartitions"})
"""A node makes a log for each element, which takes the simulator long."""


class DenseGrpcTarget:
    """One call at a time, to a node that others use before and after it."""

    name = "dense-grpc"
    examples = 4

    def __init__(self, _: random.Random) -> None:
        self._lists = [
            (path, message, fields)
            for path, message in sorted(METHODS.items())
            if path not in CHANGE_THE_CLUSTER
            for fields in lists_of(message.DESCRIPTOR)
        ]

    def draw(self, rng: random.Random) -> list[Conversation]:
        path, message, fields = rng.choice(self._lists)
        request = message()
        fill_list(request, fields, min(_COUNTS) if path in MAKES_LOGS else rng.choice(_COUNTS), 1)
        return [Conversation(path, [request.SerializeToString()], False, True)]

    def run(self, data: list[Conversation], meter: Meter) -> str:
        check_node(lambda world: send_all(world.network, GRPC_PORT, data, meter), len(data))
        return "went on"


TARGET = DenseGrpcTarget
