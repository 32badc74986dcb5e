"""Random changes of bytes that a client could send."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

SIZE_MAX: Final = 256 * 1024
"""The largest result. Larger inputs find nothing else, and slow the search down."""

_BYTES: Final = (0x00, 0x01, 0x02, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
_LENGTHS: Final = (
    *(struct.pack(">h", each) for each in (-2, -1, 0, 1, 0x7FFF, -0x8000)),
    *(struct.pack(">i", each) for each in (-2, -1, 0, 1, 0xFFFF, 0x10000, 2**31 - 1, -(2**31))),
    *(struct.pack(">q", each) for each in (-1, 2**63 - 1, -(2**63))),
)
_VARINTS: Final = (
    b"\xff\xff\xff\xff\x0f",  # the largest of 32 bits
    b"\xff\xff\xff\xff\x1f",  # more than 32 bits
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x00",  # zero in five bytes
    b"\x80\x80\x80\x80\x80\x00",  # and in six
    b"\x80\x80\x04",  # 65,536
    b"\x81\x80\x04",
    b"\xff" * 11,
)

Mutator = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def _truncate(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    for _bit in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    data[rng.randrange(len(data))] = rng.choice(_BYTES)


def _lengthen(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Write a length over what is there."""
    new = rng.choice(_LENGTHS)
    position = rng.randrange(len(data))
    data[position : position + len(new)] = new


def _varint(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    position = rng.randrange(len(data))
    data[position : position + rng.randrange(2)] = rng.choice(_VARINTS)


def _tag(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Put tagged fields in the place of a byte, which may have said that there are none."""
    count = rng.choice((1, 1, 2, 100, 127))
    size = rng.choice((0, 1, 5, 127))
    fields = b"".join(
        bytes((rng.randrange(128), size)) + rng.randbytes(size) for _field in range(count)
    )
    position = rng.randrange(len(data)) if rng.random() < 0.5 else len(data) - 1
    data[position : position + 1] = bytes((count,)) + fields


def _insert(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    position = rng.randrange(len(data) + 1)
    data[position:position] = rng.randbytes(rng.choice((1, 2, 4, 16)))


def _remove(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    position = rng.randrange(len(data))
    del data[position : position + rng.choice((1, 2, 4, 16))]


def _repeat(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Many times the same few bytes: as many elements as a length may then announce."""
    start = rng.randrange(len(data))
    piece = data[start : start + rng.choice((1, 2, 3, 8, 40))]
    times = rng.choice((2, 10, 1000, 20_000))
    data[start:start] = piece * min(times, (SIZE_MAX - len(data)) // len(piece))


def _splice(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    """The head of one and the tail of another."""
    other = rng.choice(others)
    data[rng.randrange(len(data) + 1) :] = other[rng.randrange(len(other) + 1) :]


MUTATORS: Final[tuple[Mutator, ...]] = (
    _truncate,
    _flip,
    _set,
    _lengthen,
    _varint,
    _tag,
    _insert,
    _remove,
    _repeat,
    _splice,
)


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytearray:
    """``data`` after one to four changes; ``others`` are of the same kind."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if changed:
            rng.choice(MUTATORS)(rng, changed, others)
    del changed[SIZE_MAX:]
    return changed
