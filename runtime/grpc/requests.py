"""Bytes of a request → its protobuf message, within bounds, with the right error for garbage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from functools import cache
from typing import Final, TypeVar, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from runtime.grpc.protobuf_fields import TooManyFieldsError, fields
from stele.wire.kafka.primitives import REQUEST_ELEMENTS_MAX
from stele.world import MAX_MESSAGE_BYTES, RpcCode, RpcError

M = TypeVar("M", bound=Message)

ADMIN_BYTES_MAX: Final = 16 << 20
"""The largest request without records."""

QUORUM_BYTES_MAX: Final = 1 << 20
"""The largest request of the metadata quorum, and the largest heartbeat."""

NODE_ELEMENTS_MAX: Final = 1 << 18
"""The most elements of a request that only nodes make. It may be about all partitions of a
broker."""

_FIELDS_PER_ELEMENT: Final = 4
"""Fields of a message, with those of elements that have lists. An element is at least one field,
and has some of its own."""
_FIELD_BYTES_MIN: Final = 2


def _elements(values: Sized, most: int) -> int:
    """The number of elements in a list and in the lists within it. Counting stops at the first
    element beyond the limit."""
    count = len(values)
    if count > most or isinstance(values, Mapping):
        return count
    for value in cast("Iterable[object]", values):
        if not isinstance(value, Message):
            return count
        for field, nested in value.ListFields():
            if field.is_repeated:
                count += _elements(nested, most)
            elif isinstance(nested, Message):
                count += _elements([nested], most) - 1
        if count > most:
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


def _check_count(message_type: type[Message], payload: bytes, most: int) -> None:
    """Refuse a message of far too many elements before they are made. Raises RpcError."""
    if len(payload) <= most * _FIELD_BYTES_MIN:
        return
    try:
        _count_fields(memoryview(payload), cast(Descriptor, message_type.DESCRIPTOR), most)
    except TooManyFieldsError:
        raise RpcError(RpcCode.INVALID_ARGUMENT, f"a message of more than {most} fields") from None
    except ValueError as error:
        raise _no_message(message_type, payload) from error


def _no_message(message_type: type[Message], payload: bytes) -> RpcError:
    name = message_type.DESCRIPTOR.name
    return RpcError(RpcCode.INVALID_ARGUMENT, f"{len(payload)} bytes that are no {name}")


def parse(
    message_type: type[M],
    payload: bytes,
    *,
    bytes_max: int = MAX_MESSAGE_BYTES,
    elements_max: int = REQUEST_ELEMENTS_MAX,
) -> M:
    """The message. Raises RpcError INVALID_ARGUMENT, also for lists longer than allowed (as long as
    a Kafka request may hold, by default): protobuf makes all elements, and a handler looks at all
    of them, in one turn of the event loop. Lists of numbers are made before they are counted, with
    at most some bytes for each byte of the message. ``bytes_max`` bounds these."""
    if len(payload) > bytes_max:
        raise RpcError(
            RpcCode.INVALID_ARGUMENT,
            f"a {message_type.DESCRIPTOR.name} of {len(payload)} bytes: {bytes_max} are the most",
        )
    _check_count(message_type, payload, _FIELDS_PER_ELEMENT * elements_max)
    try:
        message = message_type.FromString(payload)
    except DecodeError as error:
        raise _no_message(message_type, payload) from error
    for field, value in message.ListFields():
        if field.is_repeated and (count := _elements(value, elements_max)) > elements_max:
            raise RpcError(
                RpcCode.INVALID_ARGUMENT,
                f"{count} elements in {field.name}: {elements_max} are the most",
            )
    return message
