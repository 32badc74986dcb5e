"""Bytes of a call ↔ its protobuf message, with the right error for garbage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sized
from functools import cache
from typing import Final, TypeVar, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from broker.grpc.fields import TooManyFieldsError, fields
from runtime.authorization.caller import Caller, grpc_caller
from stele.wire.kafka.primitives import REQUEST_ELEMENTS_MAX
from stele.world import RpcCode, RpcError
from world.network import Peer, UnaryHandler

M = TypeVar("M", bound=Message)

_FIELDS_MAX: Final = 4 * REQUEST_ELEMENTS_MAX
"""Fields of a message, with those of elements that have lists. An element is at least one field,
and has some of its own."""
_FIELD_BYTES_MIN: Final = 2


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


@cache
def _lists_within(descriptor: Descriptor) -> dict[int, Descriptor]:
    """The fields of a message, by their numbers, whose own messages have lists."""
    return {
        field.number: field.message_type
        for field in descriptor.fields
        if field.message_type is not None and _has_lists(field.message_type)
    }


def _has_lists(descriptor: Descriptor) -> bool:
    """No message of a request contains itself."""
    return any(
        field.is_repeated or (field.message_type is not None and _has_lists(field.message_type))
        for field in descriptor.fields
    )


def _count_fields(message: memoryview, descriptor: Descriptor, most: int) -> int:
    """The fields of a message and of those within it that have lists. Each element of a list is a
    field. Raises TooManyFieldsError, ValueError."""
    found = fields(message, most)
    count = len(found)
    within = _lists_within(descriptor)
    if within:
        for each in found:
            nested = within.get(each.number)
            if nested is not None:
                inside = message[each.content : each.end]
                count += _count_fields(inside, nested, most - count)
    return count


def _check_count(message_type: type[Message], payload: bytes) -> None:
    """Refuse a message of far too many elements before they are made. Raises RpcError."""
    if len(payload) <= _FIELDS_MAX * _FIELD_BYTES_MIN:
        return
    try:
        _count_fields(memoryview(payload), cast(Descriptor, message_type.DESCRIPTOR), _FIELDS_MAX)
    except TooManyFieldsError:
        raise RpcError(
            RpcCode.INVALID_ARGUMENT, f"a message of more than {_FIELDS_MAX} fields"
        ) from None
    except ValueError as error:
        raise _no_message(message_type, payload) from error


def _no_message(message_type: type[Message], payload: bytes) -> RpcError:
    name = message_type.DESCRIPTOR.name
    return RpcError(RpcCode.INVALID_ARGUMENT, f"{len(payload)} bytes that are no {name}")


def parse(message_type: type[M], payload: bytes) -> M:
    """The message. Raises RpcError INVALID_ARGUMENT, also for lists longer than a Kafka request may
    hold: protobuf makes all elements, and a handler looks at all of them, in one turn of the event
    loop."""
    _check_count(message_type, payload)
    try:
        message = message_type.FromString(payload)
    except DecodeError as error:
        raise _no_message(message_type, payload) from error
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
