"""Columns of Apache Arrow as the records of batches. It needs the extra ``arrow`` and NumPy.

No row becomes a Python object: lengths and hashes are computed by NumPy for all rows at once, and
Arrow puts the bytes of the records together. ``stele.wire.batch.BatchBuilder`` is the reference,
whose bytes are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stele.producer.partitioner import MURMUR_M, MURMUR_SEED, murmur2
from stele.wire.record import RECORD_OVERHEAD, EncodedRecords

Array = Any  # NumPy's arrays; their element types say nothing that helps here

_LONG_KEY_WORDS: Final = 64
"""Keys with more words are hashed one by one: each word takes a step for all keys."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Rows that are to become records. All columns have the same length.

    ``keys`` and ``values`` are binary, with null. ``headers`` are lists of structs of a name
    (string, no null) and a value (binary), or there is no such column.
    """

    keys: pa.Array
    values: pa.Array
    headers: pa.ListArray | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Array) -> RecordColumns:
        """The rows with these numbers, in the order of the array."""
        places = pa.array(rows)
        headers = None if self.headers is None else self.headers.take(places)
        return RecordColumns(self.keys.take(places), self.values.take(places), headers)

    def slice(self, start: int, end: int) -> RecordColumns:
        """The rows from ``start`` up to, but not including, ``end``."""
        count = end - start
        headers = None if self.headers is None else self.headers.slice(start, count)
        return RecordColumns(
            self.keys.slice(start, count), self.values.slice(start, count), headers
        )


def encode_columns(
    columns: RecordColumns, partitions: Array, *, timestamp_ms: int, batch_bytes: int
) -> Iterator[tuple[int, EncodedRecords]]:
    """The records of all rows, divided into batches of one partition each.

    ``partitions`` has the partition of each row (``partitions_of``); rows with -1 are a group like
    a partition. The rows of each are in their order. A batch has at most ``batch_bytes``, or one
    record.
    """
    order = np.argsort(partitions, kind="stable")
    ordered = partitions[order]
    bounds = [*np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1)), len(order)]
    for begin, end in itertools.pairwise(bounds):
        rows = columns if end - begin == len(order) else columns.take(order[begin:end])
        for part in _divided(rows, batch_bytes):
            yield int(ordered[begin]), encode(part, timestamp_ms)


def encode(columns: RecordColumns, timestamp_ms: int) -> EncodedRecords:
    """The records of one batch, which must not be empty. All have the same time."""
    count = len(columns)
    key_sizes, value_sizes = _sizes(columns.keys), _sizes(columns.values)
    deltas, key_prefixes, value_prefixes = map(varints, (np.arange(count), key_sizes, value_sizes))
    tails = _tails(columns.headers)
    sizes = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + 2
    for part in (deltas, key_prefixes, value_prefixes, tails):
        sizes += 1 if isinstance(part, pa.Scalar) else _sizes(part)
    # Attributes, where none is defined, and the distance from the time of the batch.
    fixed = pa.scalar(b"\x00\x00", pa.binary())
    records = pc.binary_join_element_wise(
        varints(sizes),
        fixed,
        deltas,
        key_prefixes,
        columns.keys,
        value_prefixes,
        columns.values,
        tails,
        _empty(),
        null_handling="replace",
        null_replacement="",
    )
    return EncodedRecords(_content(records), count, timestamp_ms)


def partitions_of(keys: pa.Array, partition_count: int) -> Array:
    """The partition of each key, as ``stele.producer.partitioner`` chooses it; -1 for null."""
    hashes = hashes_of(keys).astype(np.int64)
    return np.where(_is_null(keys), -1, (hashes & 0x7FFFFFFF) % partition_count)


def hashes_of(keys: pa.Array) -> Array:
    """murmur2 of each key. That of null is of no use."""
    sizes = np.maximum(_sizes(keys), 0)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    starts = _offsets(keys)[:-1].astype(np.int64)
    m = np.uint32(MURMUR_M)
    value = np.uint32(MURMUR_SEED) ^ sizes.astype(np.uint32)
    words = sizes >> 2
    short = np.flatnonzero((words > 0) & (words <= _LONG_KEY_WORDS))
    # The four bytes at each place, as a number.
    at_any_place: Array = np.ndarray(len(data) - 3, "<u4", data, strides=(1,)) if len(short) else []
    number = 0
    while len(short):
        word = at_any_place[starts[short] + 4 * number].astype(np.uint32) * m
        value[short] = value[short] * m ^ (word ^ word >> np.uint32(24)) * m
        number += 1
        short = short[words[short] > number]
    tail_starts = starts + 4 * words
    for size in (1, 2, 3):
        rows = np.flatnonzero(sizes & 3 == size)
        tail = np.zeros(len(rows), np.uint32)
        for place in range(size):
            byte = data[tail_starts[rows] + place].astype(np.uint32)
            tail |= byte << np.uint32(8 * place)
        value[rows] = (value[rows] ^ tail) * m
    value = (value ^ value >> np.uint32(13)) * m
    value ^= value >> np.uint32(15)
    for row in np.flatnonzero(words > _LONG_KEY_WORDS).tolist():
        value[row] = murmur2(keys[row].as_py())
    return value


def varints(values: Array) -> pa.Array:
    """A zigzag varint for each number, as binary."""
    left = (values.astype(np.int64) << 1 ^ values.astype(np.int64) >> 63).astype(np.uint64)
    lengths = np.ones(len(values), np.int32)
    rest = left >> np.uint64(7)
    while rest.any():
        lengths += rest > 0
        rest >>= np.uint64(7)
    bounds = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    data = np.empty(bounds[-1], np.uint8)
    rows, at = np.arange(len(values)), bounds[:-1].astype(np.int64)
    while len(rows):
        is_last = lengths[rows] == 1
        byte = left[rows].astype(np.uint8)
        data[at[rows]] = np.where(is_last, byte, byte | 0x80)
        rows = rows[~is_last]
        left[rows] >>= np.uint64(7)
        lengths[rows] -= 1
        at[rows] += 1
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _divided(rows: RecordColumns, batch_bytes: int) -> Iterator[RecordColumns]:
    bounds = np.maximum(_sizes(rows.keys), 0) + np.maximum(_sizes(rows.values), 0) + RECORD_OVERHEAD
    if rows.headers is not None:
        bounds += _tail_sizes(rows.headers)
    ends = np.cumsum(bounds)
    start, used = 0, 0
    while start < len(rows):
        end = max(int(np.searchsorted(ends, used + batch_bytes, "right")), start + 1)
        yield rows.slice(start, end)
        start, used = end, int(ends[end - 1])


def _tails(headers: pa.ListArray | None) -> pa.Array:
    """The headers of each record, with their number: one scalar where there are none."""
    if headers is None or headers.null_count == len(headers):
        return pa.scalar(b"\x00", pa.binary())
    counts, each = _encoded_headers(headers)
    joined = (varints(counts), each, _empty())
    return pc.binary_join_element_wise(*joined)


def _tail_sizes(headers: pa.ListArray) -> Array:
    """The sizes of the headers of each record, without their number."""
    return _sizes(_encoded_headers(headers)[1])


@cache
def _empty() -> pa.Scalar:
    """The separator of what is joined. It is made at its first use: pyarrow imports pandas for it,
    which is half of the time that a Python process of Spark needs to start."""
    return pa.scalar(b"", pa.binary())


def _encoded_headers(headers: pa.ListArray) -> tuple[Array, pa.Array]:
    """How many headers each record has, and their bytes."""
    counts = pc.list_value_length(headers).fill_null(0).to_numpy().astype(np.int64)
    pairs = headers.flatten()  # of the rows alone: a null may hide others
    names, values = (pc.struct_field(pairs, number) for number in (0, 1))
    names = names.cast(pa.binary())
    encoded = pc.binary_join_element_wise(
        varints(_sizes(names)),
        names,
        varints(_sizes(values)),
        values,
        _empty(),
        null_handling="replace",
        null_replacement="",
    )
    # The headers of a record lie side by side, so they are one slice of the bytes of all.
    firsts = np.concatenate(([0], np.cumsum(counts)))
    bounds = _offsets(encoded)[firsts]
    buffers = [None, pa.py_buffer(np.ascontiguousarray(bounds)), encoded.buffers()[2]]
    return counts, pa.Array.from_buffers(pa.binary(), len(headers), buffers)


def _is_null(array: pa.Array) -> Array:
    return array.is_null().to_numpy(zero_copy_only=False)


def _sizes(array: pa.Array) -> Array:
    """The size of each element; -1 for null."""
    sizes = np.diff(_offsets(array)).astype(np.int64)
    if array.null_count:
        sizes[_is_null(array)] = -1
    return sizes


def _offsets(array: pa.Array) -> Array:
    """Where the elements begin in the buffer, and the end of the last."""
    if not len(array):
        return np.zeros(1, np.int32)
    found = np.frombuffer(array.buffers()[1], np.int32)
    return found[array.offset : array.offset + len(array) + 1]


def _content(array: pa.Array) -> memoryview:
    bounds = _offsets(array)
    return memoryview(array.buffers()[2])[bounds[0] : bounds[-1]]
