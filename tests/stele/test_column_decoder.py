"""Whole batches as columns agree with the records that are decoded one by one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.column_decoder import SCHEMA_WITHOUT_HEADERS, columns_of
from stele.columns import SCHEMA, record_batch
from stele.consumer.positions import RawBatch
from stele.errors import UnreadableBatchError
from stele.ids import TopicPartition
from stele.records import ConsumerRecord, TimestampType
from stele.wire.batch import (
    HEADER_SIZE,
    CorruptBatchError,
    Record,
    compute_crc,
    decode,
    encode,
    read_header,
    stamp,
)
from stele.wire.compression import Compression

pytestmark = pytest.mark.usefixtures("each_reader")

NAME = TopicPartition("orders", 3)
MILLIS = st.integers(0, 2**42)
BYTES = st.none() | st.binary(max_size=40) | st.integers(0, 20_000).map(lambda n: b"x" * n)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    drawn = []
    shapes = draw(
        st.lists(st.tuples(st.integers(1, 9_000), MILLIS, BYTES, BYTES, HEADERS), min_size=1)
    )
    for gap, time_ms, key, value, headers in shapes:
        drawn.append(Record(offset, time_ms, key, value, tuple(headers)))
        offset += gap
    return drawn


def raw(batch: bytearray, first_offset: int = 0) -> RawBatch:
    return RawBatch(NAME, bytes(batch), 0, read_header(batch), first_offset)


def rows(*batches: RawBatch, end_offset: int | None = None, headers: bool = True) -> pa.Table:
    found = list(columns_of(batches, end_offset=end_offset, include_headers=headers))
    for each in found:
        each.validate(full=True)
    return pa.Table.from_batches(found, SCHEMA if headers else SCHEMA_WITHOUT_HEADERS)


def twin(batch: bytearray, low: int, high: int) -> pa.Table:
    kind = TimestampType(read_header(batch).is_log_append_time)
    wanted = [
        ConsumerRecord(*NAME, at, time_ms, kind, key, value, headers, 0)
        for at, time_ms, key, value, headers in decode(batch)
        if low <= at < high
    ]
    return pa.Table.from_batches([record_batch(wanted)])


@given(records(), st.sampled_from(Compression), st.booleans(), st.data())
def test_columns_agree_with_the_records(
    written: list[Record], codec: Compression, appended: bool, data: st.DataObject
) -> None:
    batch = encode(written, codec)
    if appended:
        base = written[0].offset
        stamp(batch, 0, base_offset=base, leader_epoch=1, log_append_time_ms=77)
    low = data.draw(st.integers(written[0].offset - 2, written[-1].offset + 2))
    high = data.draw(st.integers(low, written[-1].offset + 2))
    found = rows(raw(batch, low), end_offset=high)
    assert found.combine_chunks() == twin(batch, low, high).combine_chunks()
    without = rows(raw(batch, low), end_offset=high, headers=False)
    assert without.schema == SCHEMA.remove(len(SCHEMA) - 1)
    assert without == found.drop_columns(["headers"])


@given(st.lists(records(), min_size=1, max_size=5), st.sampled_from((1, 300, 2**20)))
def test_batches_are_decoded_together(written: list[list[Record]], max_bytes: int) -> None:
    begin, batches = 0, []
    for each in written:
        moved = [record._replace(offset=record.offset - each[0].offset + begin) for record in each]
        batches.append(encode(moved, Compression.LZ4))
        begin = moved[-1].offset + 3
    decoded = columns_of([raw(each) for each in batches], include_headers=True, max_bytes=max_bytes)
    found = pa.Table.from_batches(decoded).combine_chunks()
    parts = pa.concat_tables([twin(each, 0, 2**63 - 1) for each in batches])
    assert found == parts.combine_chunks()


def test_the_unreadable_batch_is_named_after_the_rows_before_it() -> None:
    good, bad = encode([Record(1, 1, b"k", b"v")]), encode([Record(2, 1, b"k", b"v")])
    bad[HEADER_SIZE + 2] ^= 0x7F  # a time: the record is read, but does not end where it says
    bad[HEADER_SIZE + 4] = 0x7E  # an impossible length of the key
    bad[17:21] = compute_crc(bad, 0, len(bad)).to_bytes(4, "big")
    for _ in range(2):
        decoded = columns_of([raw(good), raw(bad)])
        assert next(decoded).num_rows == 1
        with pytest.raises(UnreadableBatchError, match="the batch at offset 2"):
            next(decoded)
        bad[-1] ^= 1  # now the CRC is wrong, which shows before anything is decoded


def test_batches_beyond_the_end_are_not_looked_at() -> None:
    good, bad = encode([Record(1, 1, b"k", b"v")]), encode([Record(2, 1, b"k", b"v")])
    bad[-1] ^= 1
    assert rows(raw(good), raw(bad), end_offset=2).num_rows == 1
    with pytest.raises(UnreadableBatchError, match="the batch at offset 2"):
        rows(raw(good), raw(bad), end_offset=3)


@given(records(), st.data())
def test_damaged_batches_are_refused_as_by_the_other_decoder(
    written: list[Record], data: st.DataObject
) -> None:
    """Any byte may be wrong with a right CRC: no decoder reads beyond the batch, and both agree."""
    batch = encode(written)
    place = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
    batch[place] = data.draw(st.integers(0, 255))
    batch[17:21] = compute_crc(batch, 0, len(batch)).to_bytes(4, "big")
    try:
        expected = twin(batch, 0, 2**63 - 1)
    except Exception:
        expected = None
    try:
        found = rows(raw(batch)).combine_chunks()
    except UnreadableBatchError:
        found = None
    if found is None:
        assert expected is None or not _rising(batch)
    elif expected is not None:
        assert found == expected.combine_chunks()


def test_a_header_that_ends_behind_its_batch_makes_the_batch_unreadable() -> None:
    batch = encode([Record(0, 0, None, b"value", (("", None),))])
    batch[-1] = 2  # the last header's value has a byte
    batch[17:21] = compute_crc(batch, 0, len(batch)).to_bytes(4, "big")
    with pytest.raises(UnreadableBatchError, match="the batch at offset 0"):
        rows(raw(batch))
    assert rows(raw(batch), headers=False).num_rows == 1


def test_a_record_with_a_negative_length_makes_its_batch_unreadable() -> None:
    batch = encode([Record(0, 0, None, b"value")])
    batch[HEADER_SIZE] |= 1  # the sign in zigzag
    batch[17:21] = compute_crc(batch, 0, len(batch)).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError, match="does not end where it says"):
        decode(batch)
    with pytest.raises(UnreadableBatchError, match="a negative length"):
        rows(raw(batch))


def _rising(batch: bytearray) -> bool:
    offsets = [each.offset for each in decode(batch)]
    return offsets == sorted(set(offsets))


def test_a_wrong_crc_names_the_batch() -> None:
    batch = encode([Record(7, 1, None, b"value")])
    batch[-1] ^= 1
    with pytest.raises(UnreadableBatchError, match="the batch at offset 7 of orders-3") as caught:
        rows(raw(batch))
    assert caught.value.next_offset == 8
