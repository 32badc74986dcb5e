"""Changed and the largest calls over gRPC of clients that have logged in, also by a delegation
token."""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from typing import NamedTuple

from tests.fuzz.cost import Meter
from tests.fuzz.node import Waiting, check_node
from tests.fuzz.secured import SETTINGS, USERS, by_token, new_token, secured
from tests.fuzz.targets.dense_grpc import DenseGrpcTarget
from tests.fuzz.targets.live_grpc import GRPC_PORT, LiveGrpcTarget
from tests.fuzz.thin import Conversation, send_all
from world.world import World


class Input(NamedTuple):
    user: str
    has_token: bool
    """Whether it logs in by a delegation token."""
    conversations: list[Conversation]


class SecuredGrpcTarget:
    name = "secured-grpc"
    examples = 6

    def __init__(self, rng: random.Random) -> None:
        self._changed, self._largest = LiveGrpcTarget(rng), DenseGrpcTarget(rng)

    def draw(self, rng: random.Random) -> Input:
        target = self._largest if rng.random() < 0.5 else self._changed
        return Input(rng.choice(USERS), rng.random() < 0.3, target.draw(rng))

    def run(self, data: Input, meter: Meter) -> str:
        async def send(world: World) -> Sequence[Waiting]:
            login = secured(data.user)
            if data.has_token:
                token = await new_token(world, data.user)
                login = by_token(token, base64.b64encode(token.hmac).decode())
            network = world.network.secured(login)
            return await send_all(network, GRPC_PORT, data.conversations, meter)

        requests = len(data.conversations) + 1  # the node warns of its own settings
        check_node(send, requests, settings=SETTINGS, good=secured("good"))
        return f"went on, of {data.user}" + " by a token" * data.has_token


TARGET = SecuredGrpcTarget
