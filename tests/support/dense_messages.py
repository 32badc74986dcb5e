"""Messages of gRPC with any number of elements, for every list of every request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_SOME: Final = 3
"""Elements of the lists around the large one."""


def lists_of(kind: Any, around: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every list of a message, after the fields that lead to it."""
    for field in kind.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.is_repeated:
            yield (*around, field)
        if field.message_type is not None and field not in around:
            yield from lists_of(field.message_type, (*around, field))


def fill_list(message: Message, path: tuple[Any, ...], count: int, number: int = 1) -> None:
    """Give the list at the end of ``path`` so many elements. No two of them are equal."""
    _name(message, number)
    field, *rest = path
    if not rest:
        values = getattr(message, field.name)
        for each in range(count):
            if field.message_type is None:
                values.append(_scalar(field, each))
            else:
                _name(values.add(), each)
    elif field.is_repeated:
        for each in range(_SOME):
            inner = getattr(message, field.name).add()
            fill_list(inner, tuple(rest), count // _SOME, each)
    else:
        inner = getattr(message, field.name)
        inner.SetInParent()
        fill_list(inner, tuple(rest), count, number)


def _name(message: Message, number: int) -> None:
    """Give its own value to each text and number of a message."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_repeated and field.message_type is None:
            setattr(message, field.name, _scalar(field, number))


def _scalar(field: Any, number: int) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return number.to_bytes(16, "big")
        return f"n{number}"
    if field.cpp_type in (FieldDescriptor.CPPTYPE_ENUM, FieldDescriptor.CPPTYPE_BOOL):
        return number % 2
    return number
