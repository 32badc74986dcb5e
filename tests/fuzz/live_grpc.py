"""Changed requests over gRPC to a whole simulated node, in calls and on streams."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from stele.addresses import Address
from stele.world import Channel, RpcError
from tests.fuzz.brokers import METHODS, STREAMS, Payloads
from tests.fuzz.live import check_node
from tests.support.one_node import HOST
from world.world import World

AT_ONCE: Final = 60
"""Calls and streams to one node."""

_GRPC_PORT: Final = 9192
_CALL_TIMEOUT_S: Final = 5.0
_ANSWERED_WITHIN_S: Final = 0.2

_CHANGE_THE_CLUSTER: Final = frozenset(
    f"/stele.v1.Admin/{name}"
    for name in ("UnregisterBroker", "UpdateFeatures", "AddVoter", "RemoveVoter")
)
"""A changed request of these may be a sound one, after which another node would be needed."""


class Conversation(NamedTuple):
    """One call, or the messages of one stream."""

    path: str
    messages: list[bytes]
    is_ended: bool
    """Whether the client ends its side of the stream. Otherwise it leaves it alone."""


class _Open:
    """A channel with streams that nobody ended."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def abort(self) -> None:
        self._closing = asyncio.ensure_future(self._channel.close())


async def _send_all(world: World, conversations: Sequence[Conversation]) -> list[_Open]:
    channel = world.network.channel(Address(HOST, _GRPC_PORT))
    for each in conversations:
        try:
            if each.path in METHODS:
                await channel.call(each.path, each.messages[0], timeout_s=_CALL_TIMEOUT_S)
            else:
                await _stream(channel, each)
        except RpcError:
            pass
    return [_Open(channel)]


async def _stream(channel: Channel, conversation: Conversation) -> None:
    stream = channel.stream(conversation.path)
    for message in conversation.messages:
        await stream.send(message)
    try:
        async with asyncio.timeout(_ANSWERED_WITHIN_S):
            while await stream.receive() is not None:
                pass
    except TimeoutError:
        pass
    if conversation.is_ended:
        await stream.close()


class LiveGrpcTarget:
    name = "live-grpc"

    def __init__(self, rng: random.Random) -> None:
        calls = {path: each for path, each in METHODS.items() if path not in _CHANGE_THE_CLUSTER}
        self._calls = Payloads(rng, calls)
        self._streams = Payloads(rng, STREAMS)

    def draw(self, rng: random.Random) -> list[Conversation]:
        return [self._conversation(rng) for _ in range(AT_ONCE)]

    def _conversation(self, rng: random.Random) -> Conversation:
        if rng.random() < 0.5:
            path = rng.choice(self._calls.paths)
            return Conversation(path, [self._calls.draw(rng, path)], True)
        path = rng.choice(self._streams.paths)
        messages = [self._streams.draw(rng, path) for _ in range(rng.choice((1, 1, 2, 5)))]
        return Conversation(path, messages, rng.random() < 0.7)

    def check(self, data: list[Conversation]) -> str:
        check_node(lambda world: _send_all(world, data), len(data))
        return "went on"
