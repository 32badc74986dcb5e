"""Changed requests of nodes to a controller: Raft, registrations, heartbeats, AlterPartition."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from tests.fuzz.cost import Meter
from tests.fuzz.grpc_methods import NODES_METHODS, NODES_STREAMS, Payloads
from tests.fuzz.node import check_node
from tests.fuzz.thin import Conversation, Conversations, send_all

AT_ONCE: Final = 60
"""Calls and streams to one node."""

_CONTROLLER_PORT: Final = 9093

_CHANGE_THE_CLUSTER: Final = frozenset(
    f"/stele.v1.Raft/{name}" for name in ("AddVoter", "RemoveVoter", "UpdateVoter")
)
"""A changed request of these may be a sound one, after which another node would be needed."""

_AS_A_NODE: Final = {"cluster_id": "the-cluster", "broker_id": 1, "voter_id": 1}
"""Without these, nearly all requests would be refused at once."""

_REFUSALS: Final = ("%s says it leads epoch %d",)
"""A claim of two leaders in one epoch is refused, and is an error of the quorum."""


class NodesTarget:
    name = "nodes"
    examples = 6

    def __init__(self, rng: random.Random) -> None:
        calls = {
            path: each for path, each in NODES_METHODS.items() if path not in _CHANGE_THE_CLUSTER
        }
        self._conversations = Conversations(
            Payloads(rng, calls, _AS_A_NODE), Payloads(rng, NODES_STREAMS, _AS_A_NODE)
        )

    def draw(self, rng: random.Random) -> list[Conversation]:
        return self._conversations.draw(rng, AT_ONCE)

    def run(self, data: Sequence[Conversation], meter: Meter) -> str:
        check_node(
            lambda world: send_all(world.network, _CONTROLLER_PORT, data, meter),
            len(data),
            _REFUSALS,
        )
        return "went on"


TARGET = NodesTarget
