"""Whole record batches as columns of Apache Arrow. It needs the extra ``arrow`` and NumPy.

No record becomes a Python object. The compiled module makes the columns where it is there. The
reference finds only the beginnings of records one after the other, because each length says where
the next record begins, and does everything else for all records of a batch at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stele.columns import SCHEMA
from stele.consumer.positions import RawBatch
from stele.wire import native
from stele.wire.batch import BatchError, body_of
from stele.wire.batch_errors import CorruptBatchError

Array = Any  # NumPy's arrays; their element types say nothing that helps here

SCHEMA_WITHOUT_HEADERS = SCHEMA.remove(len(SCHEMA) - 1)


def schema_of(*, include_headers: bool) -> pa.Schema:
    """The schema of the rows that ``columns_of`` makes."""
    return SCHEMA if include_headers else SCHEMA_WITHOUT_HEADERS


def columns_of(
    batches: Sequence[RawBatch],
    *,
    end_offset: int | None = None,
    include_headers: bool = False,
    check_crcs: bool = True,
    max_bytes: int = 16 * 1024 * 1024,
) -> Iterator[pa.RecordBatch]:
    """The records of batches of one partition as rows, with the columns of Spark's Kafka source.

    Rows are the records from each batch's ``first_offset`` up to, but not including,
    ``end_offset``. Batches beyond it are not looked at. A record without headers has null there.
    Batches are decoded together, up to ``max_bytes`` of decompressed records (more only for a batch
    that is larger itself). Raises UnreadableBatchError at the first batch that cannot be read,
    after the rows before it.
    """
    opened: list[_Opened] = []
    size_bytes = 0
    for batch in batches:
        if end_offset is not None and batch.header.base_offset >= end_offset:
            break
        try:
            body = _Opened(batch, check_crcs)
        except BatchError as error:
            if opened:
                yield from _rows(opened, end_offset, include_headers)
            raise batch.unreadable(error) from error
        if opened and size_bytes + len(body.data) > max_bytes:
            yield from _rows(opened, end_offset, include_headers)
            opened, size_bytes = [], 0
        opened.append(body)
        size_bytes += len(body.data)
    if opened:
        yield from _rows(opened, end_offset, include_headers)


class _Opened:
    """A batch that is checked and decompressed. Raises BatchError."""

    def __init__(self, batch: RawBatch, check_crcs: bool) -> None:
        self.batch = batch
        self.data = body_of(batch.data, batch.position, batch.header, verify_crc=check_crcs)


def _rows(
    opened: list[_Opened], end_offset: int | None, include_headers: bool
) -> Iterator[pa.RecordBatch]:
    """Raises UnreadableBatchError at the first batch that cannot be read, after the rows before
    it."""
    try:
        rows = [_decoded(opened, end_offset, include_headers)]
    except BatchError as error:
        if len(opened) == 1:
            raise opened[0].batch.unreadable(error) from error
        rows = []
    yield from rows
    if not rows:
        for each in opened:
            yield from _rows([each], end_offset, include_headers)


def _decoded(
    opened: list[_Opened], end_offset: int | None, include_headers: bool
) -> pa.RecordBatch:
    headers = [each.batch.header for each in opened]
    counts = [header.record_count for header in headers]

    def per_record(values: list[int]) -> Array:
        return np.repeat(np.array(values, np.int64), counts)

    columns = _columns(opened, include_headers)
    base_offsets = per_record([header.base_offset for header in headers])
    offsets = base_offsets + columns.deltas
    last_deltas = per_record([header.last_offset_delta for header in headers])
    if (columns.deltas < 0).any() or (columns.deltas > last_deltas).any():
        raise CorruptBatchError("records lie outside of their batch's offsets")
    if (np.diff(offsets) <= 0).any():
        raise CorruptBatchError("the offsets of the records do not rise")
    is_appended = per_record([header.is_log_append_time for header in headers])
    created_ms = per_record([header.base_timestamp_ms for header in headers]) + columns.times
    appended_ms = per_record([header.max_timestamp_ms for header in headers])
    times_us = np.where(is_appended, appended_ms, created_ms) * 1000
    partition = opened[0].batch.partition
    arrays = [
        columns.keys,
        columns.values,
        pa.repeat(pa.scalar(partition.topic, pa.string()), len(offsets)),
        pa.repeat(pa.scalar(partition.partition, pa.int32()), len(offsets)),
        pa.array(offsets),
        pa.array(times_us).cast(SCHEMA.field("timestamp").type),
        pa.array(is_appended.astype(np.int32)),
    ]
    if columns.headers is not None:
        arrays.append(columns.headers)
    rows = pa.record_batch(arrays, schema=schema_of(include_headers=include_headers))
    low = int(np.searchsorted(offsets, opened[0].batch.first_offset))
    high = len(offsets) if end_offset is None else int(np.searchsorted(offsets, end_offset))
    return rows.slice(low, max(high - low, 0))


class _Columns(NamedTuple):
    """What the records of some batches hold. Times and offsets are relative to their batch."""

    times: Array
    deltas: Array
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None


def _columns(opened: list[_Opened], include_headers: bool) -> _Columns:
    """Raises CorruptBatchError."""
    if native.NATIVE is not None:
        found = native.NATIVE.decode_columns(
            [each.data for each in opened],
            [each.batch.header.record_count for each in opened],
            include_headers,
        )
        if found is not None:
            return _of_buffers(*found)
    try:
        places = _Places(opened)
        return _Columns(
            places.times,
            places.deltas,
            places.slices(places.key_starts, places.key_sizes),
            places.slices(places.value_starts, places.value_sizes),
            places.headers() if include_headers else None,
        )
    except IndexError:
        raise CorruptBatchError("the batch ends inside a record") from None


def _of_buffers(
    times: bytes,
    deltas: bytes,
    keys: native.Binary,
    values: native.Binary,
    headers: native.Headers | None,
) -> _Columns:
    def binary(kind: pa.DataType, column: native.Binary) -> pa.Array:
        nulls, validity, offsets, data = column
        count = len(offsets) // 4 - 1
        buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(kind, count, [*buffers, pa.py_buffer(data)], nulls)

    return _Columns(
        np.frombuffer(times, np.int64),
        np.frombuffer(deltas, np.int64),
        binary(pa.binary(), keys),
        binary(pa.binary(), values),
        None if headers is None else _lists(binary, *headers),
    )


def _lists(
    binary: Callable[[pa.DataType, native.Binary], pa.Array],
    nulls: int,
    validity: bytes,
    offsets: bytes,
    names: native.Binary,
    values: native.Binary,
) -> pa.Array:
    kind = SCHEMA.field("headers").type
    pairs = [binary(pa.string(), names), binary(pa.binary(), values)]
    children = [pa.StructArray.from_arrays(pairs, fields=list(kind.value_type))]
    buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets)]
    count = len(offsets) // 4 - 1
    return pa.Array.from_buffers(kind, count, buffers, nulls, children=children)


class _Places:
    """The reference, with NumPy: where the fields of each record of some batches are in ``_data``,
    the bodies of all of them together. Raises CorruptBatchError, IndexError."""

    def __init__(self, opened: list[_Opened]) -> None:
        data = opened[0].data if len(opened) == 1 else b"".join(each.data for each in opened)
        self._data = data
        self._bytes = np.frombuffer(data, np.uint8)
        bases = [0, *itertools.accumulate(len(each.data) for each in opened)]
        bounds = [record_bounds(each.data, each.batch.header.record_count) for each in opened]
        starts = np.concatenate([at + base for (at, _), base in zip(bounds, bases, strict=False)])
        ends = np.concatenate([at + base for (_, at), base in zip(bounds, bases, strict=False)])
        self._ends = ends
        self.times, at = self._varints(starts + 1)  # after the attributes; none is defined
        self.deltas, at = self._varints(at)
        self.key_sizes, self.key_starts = self._sizes(at)
        at = self.key_starts + np.maximum(self.key_sizes, 0)
        self.value_sizes, self.value_starts = self._sizes(at)
        at = self.value_starts + np.maximum(self.value_sizes, 0)
        self.header_counts, self._headers_at = self._varints(at)
        has_none = self.header_counts == 0
        if (self.header_counts < 0).any() or (self._headers_at > ends).any():
            raise CorruptBatchError("an impossible count of headers")
        if (self._headers_at[has_none] != ends[has_none]).any():
            raise CorruptBatchError("a record does not end where it says")

    def _varints(self, positions: Array) -> tuple[Array, Array]:
        """The number at each position, and the positions behind them."""
        byte = self._bytes[positions]
        value = (byte & 0x7F).astype(np.uint64)
        positions = positions + 1
        pending = np.flatnonzero(byte >= 0x80)
        shift = 7
        while len(pending):
            if shift > 63:
                raise CorruptBatchError("a varint of more than ten bytes")
            byte = self._bytes[positions[pending]]
            if shift == 63 and (byte > 1).any():
                raise CorruptBatchError("a varint of more than 64 bits")
            value[pending] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            positions[pending] += 1
            pending = pending[byte >= 0x80]
            shift += 7
        one = np.uint64(1)
        return (value >> one).astype(np.int64) ^ -(value & one).astype(np.int64), positions

    def _sizes(self, positions: Array) -> tuple[Array, Array]:
        """As ``_varints``, for lengths: -1 is null."""
        sizes, positions = self._varints(positions)
        if (sizes < -1).any() or (sizes > len(self._data)).any():
            raise CorruptBatchError("an impossible length")
        return sizes, positions

    def slices(self, starts: Array, sizes: Array) -> pa.Array:
        """The bytes at these places, which rise and do not overlap; null where the size is -1.

        Arrow copies them by itself. The places and the gaps between them are the elements of an
        array over the whole body, and every second element is taken.
        """
        count = len(starts)
        if count == 0:
            return pa.array([], pa.binary())
        bounds = np.empty(2 * count, np.int32)
        bounds[0::2] = starts
        bounds[1::2] = starts + np.maximum(sizes, 0)
        if bounds[-1] > len(self._data):
            raise CorruptBatchError("the batch ends inside a record")
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self._data)]
        everything = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
        return everything.take(pa.array(np.arange(0, 2 * count, 2), mask=sizes < 0))

    def headers(self) -> pa.Array:
        """The headers of each record; null where there are none. The first headers of all records
        are read at once, then the second ones, and so on."""
        counts = self.header_counts
        left = np.flatnonzero(counts)
        kind = SCHEMA.field("headers").type
        if not len(left):
            return pa.nulls(len(counts), kind)
        if (counts > self._ends - self._headers_at).any():
            raise CorruptBatchError("an impossible count of headers")
        at = self._headers_at.copy()
        first = np.concatenate(([0], np.cumsum(counts)))  # of each record, among all headers
        places = np.empty((4, first[-1]), np.int64)
        number = 0
        while len(left):
            name_sizes, name_starts = self._sizes(at[left])
            if (name_sizes < 0).any():
                raise CorruptBatchError("a header without a name")
            sizes, starts = self._sizes(name_starts + name_sizes)
            at[left] = starts + np.maximum(sizes, 0)
            places[:, first[left] + number] = name_starts, name_sizes, starts, sizes
            number += 1
            left = left[counts[left] > number]
        if (at != self._ends).any():
            raise CorruptBatchError("a record does not end where it says")
        try:
            names = self.slices(places[0], places[1]).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise CorruptBatchError(f"a header's name is not UTF-8: {error}") from None
        values = self.slices(places[2], places[3])
        pairs = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
        return pa.ListArray.from_arrays(
            pa.array(first, pa.int32()), pairs, type=kind, mask=pa.array(counts == 0)
        )


def record_bounds(data: bytes, count: int) -> tuple[Array, Array]:
    """Where each record begins, behind its length, and where it ends."""
    starts: list[int] = []
    ends: list[int] = []
    position = 0
    for _ in range(count):
        size = data[position]
        if size < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            size = size & 0x7F | high << 7
            position += 2
        else:
            size = size & 0x7F | (high & 0x7F) << 7
            position, shift = position + 2, 14
            while True:
                byte = data[position]
                position += 1
                size |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 28:
                    raise CorruptBatchError("an impossible length of a record")
        if size & 1:
            raise CorruptBatchError("a negative length of a record")
        starts.append(position)
        position += size >> 1
        ends.append(position)
    if position != len(data):
        raise CorruptBatchError(f"{len(data)} bytes of records, {position} expected")
    return np.array(starts, np.int64), np.array(ends, np.int64)
