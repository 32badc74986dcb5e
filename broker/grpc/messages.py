"""Bytes of a call ↔ its protobuf message, with the right error for garbage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sized
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from stele.wire.kafka.primitives import REQUEST_ELEMENTS_MAX
from stele.world import RpcCode, RpcError, UnaryHandler

M = TypeVar("M", bound=Message)


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
        is_list = isinstance(value, Sized) and not isinstance(value, str | bytes)
        if is_list and len(value) > REQUEST_ELEMENTS_MAX:
            raise RpcError(
                RpcCode.INVALID_ARGUMENT,
                f"{len(value)} {field.name}: {REQUEST_ELEMENTS_MAX} are the most",
            )
    return message


def unary(message_type: type[M], answer: Callable[[M], Awaitable[Message]]) -> UnaryHandler:
    """A handler on bytes made of one on messages."""

    async def handler(payload: bytes) -> bytes:
        return (await answer(parse(message_type, payload))).SerializeToString()

    return handler
