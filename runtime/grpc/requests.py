"""Bytes of a request → its protobuf message, within bounds, with the right error for garbage."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping, Sized
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

_ELEMENTS_A_TURN: Final = 1024
"""Elements that are counted in one turn of the event loop."""


def _elements(values: Sized, of: Descriptor | None, most: int) -> Generator[None, None, int]:
    """The number of elements in a list of these messages and in the lists within it. ``of`` is None
    for a list of something else. Counting stops at the first element beyond the limit. Yields now
    and then."""
    count = len(values)
    if count > most or of is None or isinstance(values, Mapping) or not _has_lists(of):
        return count
    within = _within(of)
    for number, value in enumerate(cast("Iterable[Message]", values), 1):
        for name, nested, is_list in within:
            if is_list:
                count += yield from _elements(getattr(value, name), nested, most - count)
            elif value.HasField(name):
                count += yield from _elements([getattr(value, name)], nested, most - count)
                count -= 1  # it is no element
        if count > most:
            return count
        if not number % _ELEMENTS_A_TURN:
            yield
    return count


@cache
def _within(descriptor: Descriptor) -> tuple[tuple[str, Descriptor | None, bool], ...]:
    """The fields of a message that are lists or have some: name, message, and whether it is one."""
    return tuple(
        (field.name, field.message_type, field.is_repeated)
        for field in descriptor.fields
        if field.is_repeated or (field.message_type is not None and _has_lists(field.message_type))
    )


@cache
def _lists_within(descriptor: Descriptor) -> dict[int, Descriptor]:
    """The fields of a message, by their numbers, whose own messages have lists."""
    return {
        field.number: field.message_type
        for field in descriptor.fields
        if field.message_type is not None and _has_lists(field.message_type)
    }


@cache
def _has_lists(descriptor: Descriptor) -> bool:
    """No message of a request contains itself."""
    return any(
        field.is_repeated or (field.message_type is not None and _has_lists(field.message_type))
        for field in descriptor.fields
    )


def _count_fields(
    message: memoryview, descriptor: Descriptor, most: int
) -> Generator[None, None, int]:
    """The fields of a message and of those within it that have lists. Each element of a list is a
    field. Yields now and then. Raises TooManyFieldsError, ValueError."""
    found = fields(message, most)
    count = len(found)
    within = _lists_within(descriptor)
    if within:
        for number, each in enumerate(found, 1):
            nested = within.get(each.number)
            if nested is not None:
                inside = message[each.content : each.end]
                count += yield from _count_fields(inside, nested, most - count)
                if not number % _ELEMENTS_A_TURN:
                    yield
    return count


def _check_count(
    message_type: type[Message], payload: bytes, most: int
) -> Generator[None, None, None]:
    """Refuse a message of far too many elements before they are made. Raises RpcError."""
    if len(payload) <= most * _FIELD_BYTES_MIN:
        return
    try:
        yield from _count_fields(
            memoryview(payload), cast(Descriptor, message_type.DESCRIPTOR), most
        )
    except TooManyFieldsError:
        raise RpcError(RpcCode.INVALID_ARGUMENT, f"a message of more than {most} fields") from None
    except ValueError as error:
        raise _no_message(message_type, payload) from error


def _no_message(message_type: type[Message], payload: bytes) -> RpcError:
    name = message_type.DESCRIPTOR.name
    return RpcError(RpcCode.INVALID_ARGUMENT, f"{len(payload)} bytes that are no {name}")


def _parse(
    message_type: type[M], payload: bytes, bytes_max: int, elements_max: int
) -> Generator[None, None, M]:
    if len(payload) > bytes_max:
        raise RpcError(
            RpcCode.INVALID_ARGUMENT,
            f"a {message_type.DESCRIPTOR.name} of {len(payload)} bytes: {bytes_max} are the most",
        )
    yield from _check_count(message_type, payload, _FIELDS_PER_ELEMENT * elements_max)
    try:
        message = message_type.FromString(payload)
    except DecodeError as error:
        raise _no_message(message_type, payload) from error
    for field, value in message.ListFields():
        if not field.is_repeated:
            continue
        count = yield from _elements(value, field.message_type, elements_max)
        if count > elements_max:
            raise RpcError(
                RpcCode.INVALID_ARGUMENT,
                f"{count} elements in {field.name}: {elements_max} are the most",
            )
    return message


def parse(
    message_type: type[M],
    payload: bytes,
    *,
    bytes_max: int = MAX_MESSAGE_BYTES,
    elements_max: int = REQUEST_ELEMENTS_MAX,
) -> M:
    """The message. Raises RpcError INVALID_ARGUMENT, also for lists longer than allowed (as long as
    a Kafka request may hold, by default): protobuf makes all elements in one turn of the event
    loop. Lists of numbers are made before they are counted, with at most some bytes for each byte
    of the message. ``bytes_max`` bounds these."""
    work = _parse(message_type, payload, bytes_max, elements_max)
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast(M, end.value)


async def parse_in_slices(
    message_type: type[M],
    payload: bytes,
    *,
    bytes_max: int = MAX_MESSAGE_BYTES,
    elements_max: int = REQUEST_ELEMENTS_MAX,
) -> M:
    """As ``parse``. Between slices of the elements other tasks run."""
    work = _parse(message_type, payload, bytes_max, elements_max)
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast(M, end.value)
        await asyncio.sleep(0)
