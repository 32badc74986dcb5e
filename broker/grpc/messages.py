"""Bytes of a call ↔ its protobuf message, with the right error for garbage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sized
from typing import TypeVar, cast

from google.protobuf.message import DecodeError, Message

from runtime.authorization.caller import Caller, grpc_caller
from stele.wire.kafka.primitives import REQUEST_ELEMENTS_MAX
from stele.world import RpcCode, RpcError
from world.network import Peer, UnaryHandler

M = TypeVar("M", bound=Message)


def _elements(values: Sized) -> int:
    """The number of elements in a list and in the lists within it. Counting stops at the first
    element beyond the limit."""
    count = len(values)
    if count > REQUEST_ELEMENTS_MAX or isinstance(values, Mapping):
        return count
    for value in cast("Iterable[object]", values):
        if not isinstance(value, Message):
            return count
        for field, nested in value.ListFields():
            if field.is_repeated:
                count += _elements(nested)
            elif isinstance(nested, Message):
                count += _elements([nested]) - 1
        if count > REQUEST_ELEMENTS_MAX:
            return count
    return count


def parse(message_type: type[M], payload: bytes) -> M:
    """The message. Raises RpcError INVALID_ARGUMENT, also for lists longer than a Kafka request may
    hold: a handler looks at every element in one turn of the event loop."""
    try:
        message = message_type.FromString(payload)
    except DecodeError as error:
        name = message_type.DESCRIPTOR.name
        raise RpcError(
            RpcCode.INVALID_ARGUMENT, f"{len(payload)} bytes that are no {name}"
        ) from error
    for field, value in message.ListFields():
        if field.is_repeated and (count := _elements(value)) > REQUEST_ELEMENTS_MAX:
            raise RpcError(
                RpcCode.INVALID_ARGUMENT,
                f"{count} elements in {field.name}: {REQUEST_ELEMENTS_MAX} are the most",
            )
    return message


def unary(
    listener: str, message_type: type[M], answer: Callable[[Caller, M], Awaitable[Message]]
) -> UnaryHandler:
    """A handler on bytes made of one on messages, for those who came in over one listener."""

    async def handler(payload: bytes, peer: Peer) -> bytes:
        request = parse(message_type, payload)
        return (await answer(grpc_caller(listener, peer), request)).SerializeToString()

    return handler
