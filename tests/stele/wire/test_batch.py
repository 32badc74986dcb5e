from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.errors import ErrorCode
from stele.wire import batch as wire
from stele.wire.compression import Compression
from stele.wire.produced import validate_produced

pytestmark = pytest.mark.usefixtures("each_reader")

TIMES = st.integers(0, 4_000_000_000_000)
HEADERS = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=100)), max_size=3)
CONTENT = st.none() | st.binary(max_size=100) | st.just(b"x" * 9000)


@st.composite
def record_lists(draw: st.DrawFn) -> list[wire.Record]:
    offset = draw(st.integers(0, 1 << 40))
    records = []
    for _ in range(draw(st.integers(1, 12))):
        headers = tuple(draw(HEADERS))
        records.append(wire.Record(offset, draw(TIMES), draw(CONTENT), draw(CONTENT), headers))
        offset += draw(st.sampled_from([1, 1, 1, 70, 9000]))
    return records


@settings(max_examples=100)
@given(record_lists(), st.sampled_from(Compression))
def test_what_is_encoded_is_decoded(records: list[wire.Record], codec: Compression) -> None:
    batch = wire.encode(records, codec)
    header = wire.read_header(batch)
    assert wire.decode(batch) == records
    assert wire.check_crc(batch, 0, header)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert header.record_count == len(records)
    assert header.compression is codec
    assert header.base_timestamp_ms == records[0].timestamp_ms
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)


@settings(max_examples=100)
@given(record_lists())
def test_uncompressed_batches_agree_with_another_client(records: list[wire.Record]) -> None:
    builder = wire.BatchBuilder()
    theirs = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=1,
        producer_id=77,
        producer_epoch=3,
        base_sequence=5,
        batch_size=1 << 30,
    )
    for position, record in enumerate(records):
        _, timestamp_ms, key, value, headers = record
        assert builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers) == position
        theirs.append(position, timestamp_ms, key, value, list(headers))
    assert builder.size_bytes == theirs.size()
    ours = builder.build(producer_id=77, producer_epoch=3, base_sequence=5, is_transactional=True)
    expected = theirs.build()
    # The other codec leaves the leader epoch, which is not under the CRC, at 0 instead of -1.
    assert ours[16:] == expected[16:]
    assert ours[:12] == expected[:12]


@settings(max_examples=40)
@given(record_lists(), st.sampled_from(Compression))
def test_another_client_reads_ours_and_we_read_theirs(
    records: list[wire.Record], codec: Compression
) -> None:
    ours = bytes(wire.encode(records, codec))
    theirs = DefaultRecordBatch(ours)
    assert theirs.validate_crc()
    assert [
        (each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in theirs
    ] == records
    builder: Any = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for position, record in enumerate(records):
        builder.append(position, *record[1:4], list(record.headers))
    decoded = wire.decode(bytes(builder.build()))
    assert [each[1:] for each in decoded] == [record[1:] for record in records]
    assert [each.offset for each in decoded] == list(range(len(records)))


def make(count: int = 3, **options: Any) -> bytearray:
    builder = wire.BatchBuilder()
    for position in range(count):
        builder.append(b"k%d" % position, b"value", timestamp_ms=1000 + position)
    return builder.build(**options)


def patched(batch: bytearray, format_: str, position: int, value: int) -> bytearray:
    """A copy with one field changed and a right CRC."""
    batch = bytearray(batch)
    struct.pack_into(format_, batch, position, value)
    struct.pack_into(">I", batch, 17, wire.compute_crc(batch, 0, len(batch)))
    return batch


def test_layout_of_a_batch_byte_by_byte() -> None:
    builder = wire.BatchBuilder(base_offset=5)
    builder.append(None, b"v", timestamp_ms=100, headers=[("h", None)])
    batch = builder.build(
        producer_id=1, producer_epoch=2, base_sequence=3, leader_epoch=4, is_control=True
    )
    record = bytes.fromhex("14 00 00 00 01 02 76 02 02 68 01")
    assert batch[61:] == record
    assert batch[21:61] == struct.pack(">hiqqqhii", 0x20, 0, 100, 100, 1, 2, 3, 1)
    assert batch[:17] == struct.pack(">qiib", 5, 49 + len(record), 4, 2)


def test_attributes_and_sequence() -> None:
    header = wire.read_header(
        make(
            compression=Compression.ZSTD,
            producer_id=9,
            producer_epoch=0,
            base_sequence=(1 << 31) - 2,
            is_transactional=True,
        )
    )
    assert header.compression is Compression.ZSTD
    assert header.is_transactional
    assert not header.is_control
    assert header.last_sequence == 0  # two records reach the largest, the third wraps
    assert header.next_offset == 3
    assert header.log_append_time_ms == -1
    assert wire.read_header(make()).last_sequence == -1


def test_stamping_keeps_the_crc_valid() -> None:
    buffer = bytearray(b"###") + make()
    before = wire.read_header(buffer, 3)
    wire.stamp(memoryview(buffer), 3, base_offset=1 << 40, leader_epoch=7)
    after = wire.read_header(buffer, 3)
    assert after == before._replace(base_offset=1 << 40, leader_epoch=7)
    assert wire.check_crc(buffer, 3, after)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_log_append_time_is_every_records_time(codec: Compression) -> None:
    batch = make(compression=codec)
    wire.stamp(batch, 0, base_offset=10, leader_epoch=7, log_append_time_ms=99)
    header = wire.read_header(batch)
    assert wire.check_crc(batch, 0, header)
    assert header.is_log_append_time
    assert header.log_append_time_ms == 99
    assert header.compression is codec
    assert [(each.offset, each.timestamp_ms) for each in wire.decode(batch)] == [
        (10, 99),
        (11, 99),
        (12, 99),
    ]


def test_batches_stop_before_a_partial_tail() -> None:
    first, second = make(1), make(5)
    whole = first + second
    for cut in range(len(second) + 1):
        buffer = whole[: len(whole) - cut]
        found = [(position, header.record_count) for position, header in wire.batches(buffer)]
        expected = [(0, 1), (len(first), 5)]
        assert found == (expected if cut == 0 else expected[:1])
        assert wire.whole_size(buffer) == (len(whole) if cut == 0 else len(first))
    assert [position for position, _ in wire.batches(whole, len(first))] == [len(first)]
    assert wire.whole_size(b"") == 0


def test_a_header_in_a_batch_longer_than_the_buffer_can_be_read() -> None:
    batch = make(50)
    assert wire.read_header(batch[:61]).size_bytes == len(batch)
    assert not wire.check_crc(batch[:-1], 0, wire.read_header(batch))
    with pytest.raises(wire.PartialBatchError):
        wire.read_header(batch[:60])


def test_bytes_that_are_no_header() -> None:
    batch = make()
    for format_, position, value, error in [
        (">b", 16, 3, wire.CorruptBatchError),
        (">b", 16, 0, wire.UnsupportedMagicError),
        (">i", 8, 48, wire.CorruptBatchError),
        (">i", 8, -1, wire.CorruptBatchError),
        (">i", 23, -1, wire.CorruptBatchError),
        (">i", 57, -1, wire.CorruptBatchError),
        (">q", 0, -1, wire.CorruptBatchError),
    ]:
        with pytest.raises(error):
            wire.read_header(patched(batch, format_, position, value))


# ----------------------------------------------------------------------- hostile batches


@settings(max_examples=60)
@given(record_lists(), st.sampled_from(Compression), st.data())
def test_any_flipped_bit_under_the_crc_is_found(
    records: list[wire.Record], codec: Compression, data: st.DataObject
) -> None:
    batch = wire.encode(records, codec)
    position = data.draw(st.integers(21, len(batch) - 1))
    batch[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(wire.CorruptBatchError):
        wire.decode(batch)


@settings(max_examples=200)
@given(record_lists(), st.sampled_from(Compression), st.data())
def test_a_hostile_body_with_a_right_crc_does_no_harm(
    records: list[wire.Record], codec: Compression, data: st.DataObject
) -> None:
    batch = wire.encode(records, codec)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(61, len(batch) - 1))
        batch[position] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
    batch = patched(batch, ">i", 57, data.draw(st.sampled_from([len(records), 0, 0x7FFFFFFF])))
    try:
        decoded = wire.decode(batch, max_decompressed_bytes=1 << 20)
    except wire.CorruptBatchError:
        return
    assert len(decoded) in (0, len(records))


def record(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes([len(body) * 2]) + body


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (record(b"\0\0\0\1\1\0") + b"x", "bytes of records"),
        (record(b"\0\0\0\1\1\0")[:-1], "inside a record"),
        (record(b"\0\0\0\1\1\0\0"), "does not end"),
        (b"\xff" * 11, "ten bytes"),
        (record(b"\0\0\0\3\1\0"), "a length of -2"),
        (record(b"\0\0\0\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7e\1\0"), "64 bits"),
        (record(b"\0\0\0\xfe\xff\xff\xff\x0f\1\0"), "inside a record"),
        (record(b"\0\0\0\1\xfe\xff\xff\xff\x0f\0"), "inside a record"),
        (record(b"\0\0\0\1\1\1"), "count of headers"),
        (record(b"\0\0\0\1\1\x7e"), "count of headers"),
        (record(b"\0\0\0\1\1\2\1\1"), "without a name"),
        (record(b"\0\0\0\1\1\2\2\xff\1"), "UTF-8"),
        (record(b"\0\0\2\1\1\0"), "outside"),
        (record(b"\0\0\1\1\1\0"), "outside"),
        (b"\1", "inside a record"),
    ],
)
def test_broken_records(body: bytes, reason: str) -> None:
    header = make(1)[:61]
    batch = patched(header + bytearray(body), ">i", 8, 49 + len(body))
    with pytest.raises(wire.CorruptBatchError, match=reason):
        wire.decode(batch)


def test_records_of_a_batch_after_compaction() -> None:
    """Compaction leaves gaps, keeps the last offset, and may leave nothing at all."""
    batch = wire.encode([wire.Record(12, 1, b"k", b"v")], base_offset=10)
    batch = patched(batch, ">i", 23, 9)
    assert [each.offset for each in wire.decode(batch)] == [12]
    empty = patched(patched(make(1)[:61], ">i", 57, 0), ">i", 8, 49)
    assert wire.decode(empty) == []


def test_a_bomb_is_refused() -> None:
    builder = wire.BatchBuilder()
    builder.append(None, bytes(1 << 20), timestamp_ms=0)
    for codec in Compression:
        batch = builder.build(codec)
        assert len(wire.decode(batch)) == 1
        with pytest.raises(wire.CorruptBatchError, match="grows past"):
            wire.decode(batch, max_decompressed_bytes=1 << 19)


def test_an_unknown_codec_is_corruption() -> None:
    with pytest.raises(wire.CorruptBatchError, match="compression"):
        wire.decode(patched(make(), ">h", 21, 5))


# ------------------------------------------------------------------------------- building


def test_estimates_are_bounds() -> None:
    builder = wire.BatchBuilder()
    for size in (0, 1, 63, 64, 100, 8191, 8192, 100_000):
        key, value, headers = b"k" * (size % 97), b"v" * size, [("ü" * (size % 50), b"h" * size)]
        before = builder.size_bytes
        builder.append(key, value, timestamp_ms=size * 1_000_000, headers=headers)
        added = builder.size_bytes - before
        bound = wire.record_size_bound(key, value, headers)
        assert added <= bound <= added + 40 + 3 * 50
    assert len(builder.build()) == builder.size_bytes


def test_a_batch_of_nothing_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="no records"):
        wire.BatchBuilder().build()
    with pytest.raises(ValueError, match="no records"):
        wire.encode([])


def test_offsets_must_rise() -> None:
    builder = wire.BatchBuilder(base_offset=10)
    builder.append(None, b"", timestamp_ms=0, offset=11)
    for offset in (11, 9, 10 + (1 << 31)):
        with pytest.raises(ValueError, match="does not follow"):
            builder.append(None, b"", timestamp_ms=0, offset=offset)
    assert builder.append(None, b"", timestamp_ms=0) == 2


# ------------------------------------------------------------------------------- produced


def test_a_sound_produced_batch_passes() -> None:
    batch = make(producer_id=1, producer_epoch=0, base_sequence=0)
    assert validate_produced(memoryview(batch), len(batch)) == wire.read_header(batch)


@pytest.mark.parametrize(
    ("buffer", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (make()[:60], ErrorCode.CORRUPT_MESSAGE),
        (make()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (make() + make(), ErrorCode.INVALID_RECORD),
        (make() + b"x", ErrorCode.INVALID_RECORD),
        (make(200), ErrorCode.MESSAGE_TOO_LARGE),
        (patched(make(), ">b", 16, 1), ErrorCode.INVALID_RECORD),
        (patched(make(), ">b", 16, 3), ErrorCode.CORRUPT_MESSAGE),
        (make()[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (patched(make(), ">i", 57, 2), ErrorCode.INVALID_RECORD),
        (patched(patched(make(), ">i", 57, 0), ">i", 23, 0), ErrorCode.INVALID_RECORD),
        (make(is_control=True), ErrorCode.INVALID_RECORD),
        (patched(make(), ">h", 21, 8), ErrorCode.INVALID_TIMESTAMP),
        (patched(make(), ">h", 21, 6), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (make(producer_id=1), ErrorCode.INVALID_RECORD),
        (make(producer_id=1, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (patched(make(), ">h", 21, 0x40), ErrorCode.INVALID_RECORD),
        (patched(make(), ">h", 21, -0x8000), ErrorCode.INVALID_RECORD),
        (make(is_transactional=True), ErrorCode.INVALID_RECORD),
    ],
)
def test_an_unsound_produced_batch_gets_its_code(buffer: bytes, code: ErrorCode) -> None:
    with pytest.raises(wire.BatchError) as caught:
        validate_produced(buffer, 2000)
    assert caught.value.code is code
