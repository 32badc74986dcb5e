"""Makes handlers of bytes out of handlers of protobuf messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import Message

from runtime.authorization.caller import Caller, grpc_caller
from runtime.grpc.requests import ADMIN_BYTES_MAX, parse_in_slices
from world.network import Peer, UnaryHandler

M = TypeVar("M", bound=Message)


def unary(
    listener: str, message_type: type[M], answer: Callable[[Caller, M], Awaitable[Message]]
) -> UnaryHandler:
    """A handler of bytes that calls a handler of messages, for the clients of one listener."""

    async def handler(payload: bytes, peer: Peer) -> bytes:
        request = await parse_in_slices(message_type, payload, bytes_max=ADMIN_BYTES_MAX)
        return (await answer(grpc_caller(listener, peer), request)).SerializeToString()

    return handler
