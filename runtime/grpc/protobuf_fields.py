"""The fields of an encoded message, without making any of them.

A few bytes make an element, and protobuf makes all elements of a message in one turn of the event
loop: two million in 4 MiB, which takes more than half a second.
"""

from __future__ import annotations

from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10


class Field(NamedTuple):
    """One field: its number, and where it is in the message with and without its tag."""

    number: int
    start: int
    content: int
    end: int


class TooManyFieldsError(ValueError):
    """A message has more fields than it may have."""


def fields(message: bytes | memoryview, most: int) -> list[Field]:
    """The fields of a message, in their order. Nothing of what is in them is looked at.

    Raises ValueError if the bytes are no message, TooManyFieldsError for more than ``most``.
    """
    found: list[Field] = []
    position, size = 0, len(message)
    new = tuple.__new__
    while position < size:
        if len(found) >= most:
            raise TooManyFieldsError
        start = position
        tag = message[position]
        position += 1
        if tag >= 0x80:
            tag, position = varint(message, start)
        kind = tag & 7
        content = position
        if kind == _BYTES:
            # Short lengths are read here, since a call costs more than all the rest.
            length = message[position] if position < size else 0x80
            content = position + 1
            if length >= 0x80:
                length, content = varint(message, position)
            position = content + length
        elif kind == _VARINT:
            _, position = varint(message, position)
        elif kind == _FIXED64:
            position += 8
        elif kind == _FIXED32:
            position += 4
        else:
            raise ValueError(f"field type {kind}")
        if position > size:
            raise ValueError("the message ends within a field")
        found.append(new(Field, (tag >> 3, start, content, position)))
    return found


def varint(message: bytes | memoryview, position: int) -> tuple[int, int]:
    """A number and the position after it."""
    value = shift = 0
    for index in range(position, min(position + _VARINT_BYTES_MAX, len(message))):
        byte = message[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index + 1
        shift += 7
    raise ValueError("a number without an end")
