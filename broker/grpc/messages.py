"""Bytes of a call ↔ its protobuf message, with the right error for garbage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from stele.world import RpcCode, RpcError, UnaryHandler

M = TypeVar("M", bound=Message)


def parse(message_type: type[M], payload: bytes) -> M:
    """The message. Raises RpcError INVALID_ARGUMENT."""
    try:
        return message_type.FromString(payload)
    except DecodeError as error:
        name = message_type.DESCRIPTOR.name
        raise RpcError(
            RpcCode.INVALID_ARGUMENT, f"{len(payload)} bytes that are no {name}"
        ) from error


def unary(message_type: type[M], answer: Callable[[M], Awaitable[Message]]) -> UnaryHandler:
    """A handler on bytes made of one on messages."""

    async def handler(payload: bytes) -> bytes:
        return (await answer(parse(message_type, payload))).SerializeToString()

    return handler
