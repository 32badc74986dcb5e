"""Changed requests over gRPC to a whole simulated node, in calls and on streams."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from tests.fuzz.cost import Meter
from tests.fuzz.grpc_methods import METHODS, STREAMS, Payloads
from tests.fuzz.node import check_node
from tests.fuzz.thin import Conversation, Conversations, send_all

AT_ONCE: Final = 60
"""Calls and streams to one node."""

GRPC_PORT: Final = 9192

CHANGE_THE_CLUSTER: Final = frozenset(
    f"/stele.v1.Admin/{name}"
    for name in ("UnregisterBroker", "UpdateFeatures", "AddVoter", "RemoveVoter")
)
"""A changed request of these may be a sound one, after which another node would be needed."""


class LiveGrpcTarget:
    name = "live-grpc"
    examples = 6

    def __init__(self, rng: random.Random) -> None:
        calls = {path: each for path, each in METHODS.items() if path not in CHANGE_THE_CLUSTER}
        self._conversations = Conversations(Payloads(rng, calls), Payloads(rng, STREAMS))

    def draw(self, rng: random.Random) -> list[Conversation]:
        return self._conversations.draw(rng, AT_ONCE)

    def run(self, data: Sequence[Conversation], meter: Meter) -> str:
        check_node(lambda world: send_all(world.network, GRPC_PORT, data, meter), len(data))
        return "went on"


TARGET = LiveGrpcTarget
