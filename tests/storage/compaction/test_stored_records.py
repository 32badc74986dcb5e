"""Records as they are stored: every length and delta, and what is no record."""

from __future__ import annotations

import struct

import pytest

from stele.wire.batch import (
    HEADER_SIZE,
    BatchBuilder,
    BatchError,
    CorruptBatchError,
    compute_crc,
    read_header,
)
from stele.wire.record import encode_varint
from storage.compaction.rewriting import emptied
from storage.compaction.stored_records import body_of, stored_records


def stored(key: bytes, value: bytes | None, *, key_size: int | None = None) -> bytes:
    """A record; ``key_size``: what it says in place of the size of its key."""
    told = b"\x01" if value is None else encode_varint(len(value)) + value
    size = len(key) if key_size is None else key_size
    rest = b"\0" + encode_varint(0) + encode_varint(0) + encode_varint(size) + key + told + b"\0"
    return encode_varint(len(rest)) + rest


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 8191, 8192, 8193])
def test_any_size_of_a_key_and_any_delta(size: int) -> None:
    builder = BatchBuilder()
    deltas = [0, size, -size, 1 << 40]
    for delta_ms in deltas:
        builder.append(b"k" * size, None, timestamp_ms=1_000_000_000_000 + delta_ms)
    batch = builder.build()
    found = stored_records(body_of(batch, read_header(batch)), len(deltas))
    assert [each.timestamp_delta_ms for each in found] == deltas
    assert [each.offset_delta for each in found] == [0, 1, 2, 3]
    assert {(each.key, each.is_tombstone) for each in found} == {(b"k" * size, True)}


def test_records_fill_a_batch() -> None:
    body = stored(b"a", b"1") + stored(b"b", b"2")
    assert [each.key for each in stored_records(body, 2)] == [b"a", b"b"]
    for data, count in ((body + b"\0", 2), (body, 1), (body[:-1], 2), (body, 3)):
        with pytest.raises(CorruptBatchError):
            stored_records(data, count)


@pytest.mark.parametrize("too_much", range(1, 12))
def test_a_key_does_not_go_beyond_its_record(too_much: int) -> None:
    """Though there are bytes behind it, which are the next record's."""
    body = stored(b"a", b"1", key_size=1 + too_much) + stored(b"b" * 20, b"2")
    try:
        found = stored_records(body, 2)
    except CorruptBatchError:
        return
    # The value's length is taken from within the record still.
    assert found[0].key == (b"a" + encode_varint(1) + b"1")[: 1 + too_much]
    assert too_much <= 2


def test_a_batch_without_records_has_nothing_to_decompress() -> None:
    builder = BatchBuilder()
    builder.append(b"a", b"1", timestamp_ms=0)
    batch = emptied(read_header(builder.build()))
    batch[22] |= 4  # zstd
    batch[17:21] = struct.pack(">I", compute_crc(batch, 0, len(batch)))
    assert len(batch) == HEADER_SIZE
    assert body_of(batch, read_header(batch)) == b""
    batch[17] ^= 1
    with pytest.raises(BatchError):
        body_of(batch, read_header(batch))
