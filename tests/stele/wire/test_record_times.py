"""Times and offsets of records, compared with a whole decoding of their batch."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.wire import batch as wire
from stele.wire import record_times as module
from stele.wire.compression import Compression
from stele.wire.record_times import record_times

CODECS = list(Compression)
VALUES = st.none() | st.binary(max_size=60) | st.sampled_from([b"x" * 9000, b"y" * 70_000])
RECORDS = st.lists(
    st.tuples(st.integers(-10, 4_000_000_000_000), VALUES, st.integers(1, 1 << 20)),
    min_size=1,
    max_size=9,
)


def built(records: list[Any], codec: Compression) -> bytearray:
    """Offsets have gaps, as after a compaction."""
    builder = wire.BatchBuilder(1000)
    offset = 1000
    for timestamp_ms, value, gap in records:
        offset += gap
        builder.append(value, value, timestamp_ms=timestamp_ms, offset=offset)
    return builder.build(codec)


def places(batch: bytes | bytearray, position: int = 0) -> list[tuple[int, int]]:
    slices = record_times(batch, position, wire.read_header(batch, position))
    return [place for each in slices for place in each]


@settings(max_examples=150)
@given(RECORDS, st.sampled_from(CODECS), st.booleans())
def test_times_agree_with_the_decoded_records(
    records: list[Any], codec: Compression, appended: bool
) -> None:
    batch = built(records, codec)
    if appended:
        wire.stamp(batch, 0, base_offset=7, leader_epoch=1, log_append_time_ms=5_000)
    expected = [(each.timestamp_ms, each.offset) for each in wire.decode(batch)]
    assert places(batch) == expected
    assert places(b"before" + batch + b"behind", 6) == expected


@settings(max_examples=150)
@given(RECORDS, st.lists(st.integers(0, 1 << 20), max_size=12))
def test_it_does_not_matter_where_the_parts_end(records: list[Any], cuts: list[int]) -> None:
    batch = built(records, Compression.NONE)
    body = bytes(batch[wire.HEADER_SIZE :])
    ends = sorted({*(cut % (len(body) + 1) for cut in cuts), len(body)})
    parts = [body[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    expected = places(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "decompressed", lambda *_, **__: iter(parts))
        assert places(batch) == expected


@pytest.mark.parametrize("codec", CODECS)
def test_the_work_is_done_in_slices(codec: Compression) -> None:
    many = built([(number, b"", 1) for number in range(10_500)], codec)
    sizes = [len(each) for each in record_times(many, 0, wire.read_header(many))]
    assert sum(sizes) == 10_500
    assert max(sizes) <= module.SLICE_RECORDS
    large = built([(1, bytes(1 << 20), 1)] * 20, codec)
    slices = list(record_times(large, 0, wire.read_header(large)))
    assert codec in (Compression.NONE, Compression.SNAPPY) or len(slices) >= 70


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_ends_early_is_corrupt(codec: Compression) -> None:
    batch = built([(1, b"v", 1)] * 3, codec)
    struct.pack_into(">i", batch, 57, 4)
    with pytest.raises(wire.CorruptBatchError, match="before record 3"):
        places(batch)
