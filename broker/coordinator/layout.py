"""How fields of the records of internal topics are laid out.

Layouts are Kafka's. In flexible ones (KIP-482) a length is a varint of the length plus one, and
structures end with tagged fields. Unknown tagged fields are skipped. Keys are never flexible.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from stele.errors import ApiError
from stele.wire.kafka.primitives import encode_uvarint, read_uvarint

VERSION: Final = struct.Struct(">h")
"""What every key and every value begins with."""

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_FLEXIBLE_FROM: Final = 4


STRING_BYTES_MAX: Final = 32_767
"""What a string of a key or of an older layout holds. Kafka's protocol has the same bound, but gRPC
has none."""

NAME_BYTES_MAX: Final = 32_000
"""The longest name of a member that a coordinator takes. It makes a member id of it and a UUID."""


def utf16_units(text: str) -> int:
    """The length of a string in Java. Kafka counts the metadata of an offset so."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def is_too_long(*names: str | None, most: int = NAME_BYTES_MAX) -> bool:
    """Whether one of the names has more bytes than ``most``."""
    for name in names:
        # A character has 4 bytes at most, so nearly every name is short enough without a copy.
        if name is not None and 4 * len(name) > most and len(name.encode()) > most:
            return True
    return False


def string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def nullable_string(text: str | None) -> bytes:
    return _INT16.pack(-1) if text is None else string(text)


def compact_string(text: str | None) -> bytes:
    return compact_bytes(None if text is None else text.encode())


def compact_bytes(data: bytes | None) -> bytes:
    return b"\0" if data is None else encode_uvarint(len(data) + 1) + data


def compact_length(length: int) -> bytes:
    """What an array begins with."""
    return encode_uvarint(length + 1)


def compact_strings(texts: Sequence[str]) -> bytes:
    return compact_length(len(texts)) + b"".join(map(compact_string, texts))


def compact_int32s(numbers: Sequence[int]) -> bytes:
    return compact_length(len(numbers)) + struct.pack(f">{len(numbers)}i", *numbers)


def tagged(fields: Mapping[int, bytes]) -> bytes:
    """The tagged fields that a structure ends with."""
    parts = [encode_uvarint(len(fields))]
    for tag, data in sorted(fields.items()):
        parts += (encode_uvarint(tag), encode_uvarint(len(data)), data)
    return b"".join(parts)


def key_string(data: bytes, position: int) -> tuple[str, int]:
    """A string of a key, and where it ends. Raises ValueError, struct.error."""
    (length,) = _INT16.unpack_from(data, position)
    position += _INT16.size
    end = position + length
    if not position <= end <= len(data):
        raise ValueError("a key that ends early")
    return data[position:end].decode(), end


class Reader:
    """Reads the fields of a value in the order of its layout. Raises ValueError."""

    __slots__ = ("_data", "_flexible", "_position", "_what", "version")

    def __init__(
        self, data: bytes, what: str, *, last_version: int, flexible_from: int = _FLEXIBLE_FROM
    ) -> None:
        self._data = data
        self._what = what
        self._position = 0
        self.version = self._number(VERSION)
        if not 0 <= self.version <= last_version:
            raise ValueError(f"{what} of version {self.version}")
        self._flexible = self.version >= flexible_from

    def _number(self, layout: struct.Struct) -> int:
        try:
            number: int = layout.unpack_from(self._data, self._position)[0]
        except struct.error:
            raise ValueError(f"{self._what} that ends early") from None
        self._position += layout.size
        return number

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int32s(self, count: int) -> tuple[int, ...]:
        """The elements of an array."""
        return struct.unpack(f">{count}i", self._take(_INT32.size * count))

    def int64(self) -> int:
        return self._number(_INT64)

    def _uvarint(self) -> int:
        try:
            number, self._position = read_uvarint(self._data, self._position)
        except (IndexError, ApiError):
            raise ValueError(f"{self._what} with a length that cannot be read") from None
        return number

    def _length(self, layout: struct.Struct) -> int:
        """The length of a string, of bytes or of an array; -1 for null."""
        return self._uvarint() - 1 if self._flexible else self._number(layout)

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise ValueError(f"{self._what} that ends early")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def string(self) -> str:
        return self._take(self._length(_INT16)).decode()  # UnicodeDecodeError is a ValueError

    def nullable_string(self) -> str | None:
        length = self._length(_INT16)
        return None if length == -1 else self._take(length).decode()

    def strings(self) -> tuple[str, ...]:
        """An array of strings."""
        return tuple(self.string() for _ in range(self.array_length()))

    def uuid(self) -> bytes:
        return self._take(16)

    def binary(self) -> bytes:
        return self._take(self._length(_INT32))

    def array_length(self) -> int:
        length = self.nullable_array_length()
        if length is None:
            raise ValueError(f"{self._what} without an array")
        return length

    def nullable_array_length(self) -> int | None:
        length = self._length(_INT32)
        if length == -1:
            return None
        if not 0 <= length <= len(self._data):  # an element takes more than a byte
            raise ValueError(f"{self._what} with {length} elements")
        return length

    def tags(self) -> dict[int, bytes]:
        """The tagged fields of a structure. Versions that are not flexible have none."""
        fields: dict[int, bytes] = {}
        if self._flexible:
            for _ in range(self._uvarint()):
                tag = self._uvarint()
                fields[tag] = self._take(self._uvarint())
        return fields
