"""A client of gRPC that sends any bytes, in calls and on streams."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from stele.addresses import Address
from stele.world import Channel, Connector, RpcError
from tests.fuzz.cost import Meter
from tests.fuzz.grpc_methods import Payloads
from tests.support.one_node import HOST

_CALL_TIMEOUT_S: Final = 5.0
_ANSWERED_WITHIN_S: Final = 0.2


class Conversation(NamedTuple):
    """One call, or the messages of one stream."""

    path: str
    messages: list[bytes]
    is_stream: bool
    is_ended: bool
    """Whether the client ends its side of the stream. Otherwise it leaves it alone."""


class Conversations:
    """Draws calls of some methods, and as many streams of others."""

    def __init__(self, calls: Payloads, streams: Payloads) -> None:
        self._calls = calls
        self._streams = streams

    def draw(self, rng: random.Random, count: int) -> list[Conversation]:
        return [self._one(rng) for _ in range(count)]

    def _one(self, rng: random.Random) -> Conversation:
        if rng.random() < 0.5:
            path = rng.choice(self._calls.paths)
            return Conversation(path, [self._calls.draw(rng, path)], False, True)
        path = rng.choice(self._streams.paths)
        messages = [self._streams.draw(rng, path) for _ in range(rng.choice((1, 1, 2, 5)))]
        return Conversation(path, messages, True, rng.random() < 0.7)


class _Open:
    """A channel with streams that nobody ended."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def abort(self) -> None:
        self._closing = asyncio.ensure_future(self._channel.close())


async def send_all(
    network: Connector, port: int, conversations: Sequence[Conversation], meter: Meter
) -> list[_Open]:
    channel = network.channel(Address(HOST, port))
    for each in conversations:
        meter.request(sum(map(len, each.messages)))
        try:
            if each.is_stream:
                await _stream(channel, each)
            else:
                await channel.call(each.path, each.messages[0], timeout_s=_CALL_TIMEOUT_S)
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
