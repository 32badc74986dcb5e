"""Changed requests and the largest ones of clients that have logged in, with and without rights."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from stele.wire.kafka.messages import expire_delegation_token, renew_delegation_token
from tests.fuzz.cost import Meter
from tests.fuzz.node import check_node
from tests.fuzz.rude import Rude, send_all
from tests.fuzz.secured import SETTINGS, USERS, frame, login_frames, new_token, secured
from tests.fuzz.targets.dense import DenseTarget
from tests.fuzz.targets.live import LiveTarget
from world.world import World

_HMAC: Final = b"\xff" * 64
"""Stands for the HMAC of a token of the client."""

_PERIODS: Final = (-(2**63), -1, 0, 1, 1000, 2**40, 2**63 - 1)


class Input(NamedTuple):
    user: str
    frames: list[bytes]


class SecuredTarget:
    name = "secured"
    examples = 8

    def __init__(self, rng: random.Random) -> None:
        self._changed, self._largest = LiveTarget(rng), DenseTarget(rng)

    def draw(self, rng: random.Random) -> Input:
        frames = self._largest.draw(rng) if rng.random() < 0.5 else self._changed.draw(rng)
        for _ in range(3):
            frames.insert(rng.randint(0, len(frames)), _about_a_token(rng))
        return Input(rng.choice(USERS), frames)

    def run(self, data: Input, meter: Meter) -> str:
        async def send(world: World) -> Sequence[Rude]:
            token = await new_token(world, data.user)
            frames = [each.replace(_HMAC, token.hmac) for each in data.frames]
            return await send_all(world, frames, meter, login_frames(data.user))

        check_node(send, len(data.frames), settings=SETTINGS, good=secured("good"))
        return f"went on, of {data.user}"


def _about_a_token(rng: random.Random) -> bytes:
    period_ms = rng.choice(_PERIODS)
    if rng.random() < 0.5:
        renewal = renew_delegation_token.RenewDelegationTokenRequest(_HMAC, period_ms)
        return frame(renew_delegation_token.API, 2, renewal)
    end = expire_delegation_token.ExpireDelegationTokenRequest(_HMAC, period_ms)
    return frame(expire_delegation_token.API, 2, end)


TARGET = SecuredTarget
