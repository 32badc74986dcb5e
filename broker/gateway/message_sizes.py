"""How many records go into one message to a thin client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stele.wire.record import Header, Record

MESSAGE_BYTES_MAX: Final = 256 * 1024
"""The most bytes of keys, values and headers, if there is more than one record."""


def sizes_of_message(records: Sequence[Record]) -> list[int]:
    """The sizes of the records from the first one on that fit into a message."""
    sizes = [
        len(key or b"") + len(value or b"") + (_headers_size(headers) if headers else 0)
        for _, _, key, value, headers in records
    ]
    if sum(sizes) <= MESSAGE_BYTES_MAX:
        return sizes
    left = MESSAGE_BYTES_MAX
    for number, size in enumerate(sizes):
        left -= size
        if number and left < 0:
            return sizes[:number]
    return sizes


def _headers_size(headers: Sequence[Header]) -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)
