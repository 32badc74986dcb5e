"""The functions that compiled codecs call: varints, tables, and the errors of the wire."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NoReturn

from stele.errors import ApiError, ErrorCode, SteleError
from stele.world import Buffer

ZERO_UUID: Final = bytes(16)

STRING_BYTES_MAX: Final = 2**15 - 1
"""The longest string of the protocol, whose first versions had 16-bit lengths."""

REQUEST_ELEMENTS_MAX: Final = 65_536
"""The most elements of all arrays of one request together, including unknown tagged fields.

All of them are in memory at once. Kafka has such a limit only for DescribeTopicPartitions
(``max.request.partition.size.limit``).
"""


SLICE_ELEMENTS: Final = 1024
"""The elements that a codec reads or writes in one slice, which takes about a millisecond."""


class MalformedMessageError(ApiError):
    """The bytes are not a valid message of their kind."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class TooManyElementsError(MalformedMessageError):
    """The arrays of a message have more elements together than allowed."""


class UnencodableMessageError(SteleError):
    """A message has a value that its version cannot represent: a bug in this program."""


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position after it."""
    value = buffer[position]
    position += 1
    if value < 0x80:  # nearly each is a small number
        return value, position
    value, shift = value & 0x7F, 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                raise MalformedMessageError("a varint of more than 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise MalformedMessageError("a varint of more than five bytes")


def encode_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class UvarintTable(dict[int, bytes]):
    """The encoding of every short length. Long ones are computed and not kept."""

    def __init__(self) -> None:
        super().__init__((value, encode_uvarint(value)) for value in range(1024))

    def __missing__(self, value: int) -> bytes:
        return encode_uvarint(value)


UVARINTS: Final = UvarintTable()

_SHORT: Final = 33
_FORMATS: Final = "bhHiIqd"
UNPACK_SHORT: Final[dict[str, list[Callable[[Any, int], tuple[Any, ...]]]]] = {
    format_: [struct.Struct(f">{count}{format_}").unpack_from for count in range(_SHORT)]
    for format_ in _FORMATS
}
PACK_SHORT: Final[dict[str, list[Callable[..., bytes]]]] = {
    format_: [struct.Struct(f">{count}{format_}").pack for count in range(_SHORT)]
    for format_ in _FORMATS
}


def read_numbers(format_: str, count: int, buffer: Buffer, position: int) -> list[Any]:
    """An array of numbers. The caller has checked that it fits."""
    if count < _SHORT:
        return list(UNPACK_SHORT[format_][count](buffer, position))
    return list(struct.unpack_from(f">{count}{format_}", buffer, position))


def write_numbers(format_: str, values: list[Any]) -> bytes:
    if len(values) < _SHORT:
        return PACK_SHORT[format_][len(values)](*values)
    return struct.pack(f">{len(values)}{format_}", *values)


def refuse_null() -> NoReturn:
    raise MalformedMessageError("null in a field that must not be null")


def refuse_count() -> NoReturn:
    raise TooManyElementsError(
        f"the arrays of a request hold more than {REQUEST_ELEMENTS_MAX} elements together"
    )


def refuse_length() -> NoReturn:
    raise MalformedMessageError("a length beyond the end of the message")
