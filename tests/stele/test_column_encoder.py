"""Columns become the same bytes as records that are appended one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from stele.column_encoder import (
    RecordColumns,
    encode,
    encode_columns,
    hashes_of,
    partitions_of,
    varints,
)
from stele.columns import SCHEMA
from stele.producer.partitioner import murmur2, partition_of
from stele.wire.batch import HEADER_SIZE, BatchBuilder, decode
from stele.wire.compression import Compression
from stele.wire.record import EncodedRecords, Header, encode_varint, record_size_bound

BYTES = st.none() | st.binary(max_size=12) | st.integers(0, 20_000).map(lambda n: b"x" * n)
HEADERS = st.none() | st.lists(
    st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=9)), max_size=3
)
ROW = st.tuples(BYTES, BYTES, HEADERS)
Row = tuple[bytes | None, bytes | None, list[Header] | None]
NOW_MS = 1_700_000_000_000


def columns_of(rows: list[Row], *, before: int = 0, with_headers: bool = True) -> RecordColumns:
    """The rows as columns, behind ``before`` other rows of the same arrays."""
    other: Row = (b"other", b"row", [("h", b"v")])
    padded = [other] * before + rows
    headers = [
        None if each is None else [{"key": name, "value": value} for name, value in each]
        for _, _, each in padded
    ]
    found = RecordColumns(
        pa.array([key for key, _, _ in padded], pa.binary()),
        pa.array([value for _, value, _ in padded], pa.binary()),
        pa.array(headers, SCHEMA.field("headers").type) if with_headers else None,
    )
    return found.slice(before, len(padded))


def twin(rows: list[Row]) -> bytes:
    builder = BatchBuilder()
    for key, value, headers in rows:
        builder.append(key, value, timestamp_ms=NOW_MS, headers=headers or ())
    return bytes(builder.build())


def built(records: EncodedRecords, codec: Compression = Compression.NONE) -> bytes:
    builder = BatchBuilder()
    builder.fill(records)
    return bytes(builder.build(codec))


@given(st.lists(ROW, min_size=1, max_size=300), st.integers(0, 3), st.booleans())
def test_the_bytes_agree_with_the_builder(rows: list[Row], before: int, with_headers: bool) -> None:
    columns = columns_of(rows, before=before, with_headers=with_headers)
    expected: list[Row] = [(key, value, h if with_headers else None) for key, value, h in rows]
    records = encode(columns, NOW_MS)
    assert built(records) == twin(expected)
    assert decode(built(records, Compression.LZ4)) == decode(twin(expected))


@given(
    st.lists(st.tuples(ROW, st.integers(-1, 2)), max_size=60), st.integers(1, 3_000), st.booleans()
)
def test_rows_are_divided_by_partition_and_size(
    rows: list[tuple[Row, int]], batch_bytes: int, with_headers: bool
) -> None:
    given_rows = [(k, v, h if with_headers else None) for (k, v, h), _ in rows]
    partitions = np.array([partition for _, partition in rows], np.int64)
    columns = columns_of(given_rows, with_headers=with_headers)
    found: dict[int, list[Row]] = {}
    for partition, records in encode_columns(
        columns, partitions, timestamp_ms=NOW_MS, batch_bytes=batch_bytes
    ):
        batch = built(records)
        assert records.record_count == 1 or len(batch) - HEADER_SIZE <= batch_bytes
        found.setdefault(partition, []).extend(
            (each.key, each.value, list(each.headers)) for each in decode(batch)
        )
    expected: dict[int, list[Row]] = {}
    for (key, value, headers), (_, partition) in zip(given_rows, rows, strict=True):
        expected.setdefault(partition, []).append((key, value, headers or []))
    assert found == expected


def test_batches_are_about_as_large_as_they_may_be() -> None:
    rows: list[Row] = [(b"key", b"v" * 100, None)] * 1_000
    bound = record_size_bound(b"key", b"v" * 100)
    partitions = np.zeros(1_000, np.int64)
    counts = [
        records.record_count
        for _, records in encode_columns(
            columns_of(rows), partitions, timestamp_ms=NOW_MS, batch_bytes=300 * bound
        )
    ]
    assert counts == [300, 300, 300, 100]


@given(st.lists(st.none() | st.binary(max_size=300), max_size=50), st.integers(0, 2))
def test_keys_go_where_each_would_go_alone(keys: list[bytes | None], before: int) -> None:
    array = pa.array([b"another"] * before + keys, pa.binary()).slice(before)
    hashes = hashes_of(array).tolist()
    assert [h for h, key in zip(hashes, keys, strict=True) if key is not None] == [
        murmur2(key) for key in keys if key is not None
    ]
    expected = [-1 if key is None else partition_of(key, 7) for key in keys]
    assert partitions_of(array, 7).tolist() == expected


@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(-300, 20_000)))
def test_varints_agree_with_the_codec(values: list[int]) -> None:
    array = varints(np.array(values, np.int64))
    array.validate(full=True)
    assert array.to_pylist() == [encode_varint(each) for each in values]
