"""Every acknowledged record can be read: the check of produced records, compared with all decoders
here."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from stele.errors import ErrorCode
from stele.wire import batch as wire
from stele.wire import record_check
from stele.wire.batch_errors import RejectedRecordsError
from stele.wire.compression import Compression, compress, decompress
from stele.wire.produced import validate_produced
from stele.wire.record import encode_varint
from stele.wire.record_check import RecordCheck, TimeDeltas

pytestmark = pytest.mark.usefixtures("each_reader")

CODECS = list(Compression)
HEADERS = st.lists(
    st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=100)), max_size=3
) | st.just([("n", b"1")] * 60)
CONTENT = (
    st.none() | st.binary(max_size=60) | st.sampled_from([b"x" * 9000, b"y" * 70_000, b"\x01\x02"])
)
RECORDS = st.lists(
    st.tuples(st.integers(-10, 4_000_000_000_000), CONTENT, CONTENT, HEADERS),
    min_size=1,
    max_size=9,
)


def body_of(records: list[Any]) -> bytes:
    return bytes(built(records)[wire.HEADER_SIZE :])


def built(records: list[Any], codec: Compression = Compression.NONE) -> bytearray:
    builder = wire.BatchBuilder()
    for timestamp_ms, key, value, headers in records:
        builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers)
    return builder.build(codec)


def sealed(batch: bytearray, body: bytes) -> bytearray:
    """The batch with other records. Its length and CRC are right."""
    sealed = batch[: wire.HEADER_SIZE] + body
    struct.pack_into(">i", sealed, 8, len(sealed) - wire.PREFIX_SIZE)
    struct.pack_into(">I", sealed, 17, wire.compute_crc(sealed, 0, len(sealed)))
    return sealed


def checked(batch: bytearray) -> int:
    """How often the check of a whole batch lets other tasks run. Raises BatchError."""
    header = validate_produced(batch, len(batch))
    body = memoryview(batch)[wire.HEADER_SIZE :]
    times = TimeDeltas.of(header.base_timestamp_ms, -(1 << 63), 1 << 63)
    checks = RecordCheck(header.compression, body, header.record_count, times=times)
    return sum(1 for _ in checks)


def refusal(batch: bytearray) -> wire.BatchError:
    with pytest.raises(wire.BatchError) as caught:
        checked(batch)
    return caught.value


def read_by_all(batch: bytearray) -> None:
    """The records, if all decoders here read the same."""
    header = wire.read_header(batch)
    ours = wire.decode(batch)
    assert [record.offset for record in ours] == list(range(header.record_count))
    expected = [tuple(record) for record in ours]
    theirs: Any = AiokafkaBatch(bytes(batch))
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == expected
    if header.compression is not Compression.SNAPPY:  # kafka-python has it from another package
        again = MemoryRecords(bytes(batch)).next_batch()
        assert [
            (r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in again
        ] == expected


# ----------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("codec", CODECS[1:])
def test_compressed_records_that_are_not(codec: Compression) -> None:
    batch = wire.BatchBuilder()
    batch.append(b"k", b"v" * 100, timestamp_ms=1)
    plain = batch.build()
    struct.pack_into(">h", plain, 21, codec)
    for body in (bytes(plain[wire.HEADER_SIZE :]), b"", b"\0" * 40):
        error = refusal(sealed(plain, body))
        assert error.code is ErrorCode.INVALID_RECORD
        assert str(error)


@pytest.mark.parametrize("codec", CODECS)
def test_more_records_are_claimed_than_there_are(codec: Compression) -> None:
    batch = built([(1, b"k", b"v", ())] * 2, codec)
    struct.pack_into(">i", batch, 23, 999)
    struct.pack_into(">i", batch, 57, 1000)
    error = refusal(sealed(batch, bytes(batch[wire.HEADER_SIZE :])))
    assert error.code is ErrorCode.INVALID_RECORD
    assert "ends inside a record" in str(error)


@pytest.mark.parametrize("codec", CODECS)
def test_fewer_records_are_claimed_than_there_are(codec: Compression) -> None:
    batch = built([(1, b"k", b"v", ())] * 3, codec)
    struct.pack_into(">i", batch, 23, 1)
    struct.pack_into(">i", batch, 57, 2)
    error = refusal(sealed(batch, bytes(batch[wire.HEADER_SIZE :])))
    assert "behind the last record" in str(error)


RECORD = b"\x10\0\0\0\x02k\x02v\0"  # its length, 8, and what it stands for


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (RECORD, None),
        (b"\x10\x80\0\0\x02k\x02v\0", "attributes 0x80"),
        (b"\x12\0\0\0\x02k\x02v\0", "does not end where it says"),
        (b"\x0e\0\0\0\x02k\x02v\0", "does not end where it says"),
        (b"\x0f\0\0\0\x02k\x02v\0", "that is impossible"),
        (b"\x10\0\0\x02\x02k\x02v\0", "record 0 says that it is record 1"),
        (b"\x10\0\0\0\x03k\x02v\0", "holds -2 bytes"),
        (b"\x10\0\0\0\x02k\x05v\0", "holds -3 bytes"),
        (b"\x10\0\0\0\x02k\x40v\0", "holds 32 bytes"),
        (b"\x10\0\0\0\x02k\x02v\x01", "-1 headers"),
        (b"\x14\0\0\0\x02k\x02v\x02\x01\x00", "a header's name of -1 bytes"),
        (b"\x16\0\0\0\x02k\x02v\x02\x02\xff\x00", "not UTF-8"),
        (b"\x80\x80\x80\x80\x80\x01\0\0\0\x02k\x02v\0", "the length of record 0 is no varint"),
        (b"\x10" + b"\0" + b"\xff" * 12, "the time of record 0 is no varint"),
        (RECORD + b"\0", "behind the last"),
        (b"", "inside"),
    ],
)
@pytest.mark.parametrize("codec", CODECS)
def test_unsound_records(body: bytes, words: str | None, codec: Compression) -> None:
    batch = sealed(built([(1, b"k", b"v", ())], codec), compress(codec, body))
    if words is None:
        assert checked(batch) == 0
        read_by_all(batch)
        return
    error = refusal(batch)
    assert error.code is ErrorCode.INVALID_RECORD
    assert words in str(error)


@pytest.mark.parametrize("codec", CODECS)
def test_times_have_bounds_whatever_the_header_claims(codec: Compression) -> None:
    def check(*times_ms: int) -> None:
        batch = built([(each, b"k", b"v", ()) for each in times_ms], codec)
        allowed = TimeDeltas.of(times_ms[0], 1_000_000, 2_000_000)
        body = memoryview(batch)[wire.HEADER_SIZE :]
        assert not list(RecordCheck(codec, body, len(times_ms), times=allowed))

    check(1_500_000, 1_000_000, 2_000_000, -1)
    for late_ms in (999_999, 2_000_001, 1 << 50, -2, 0):
        with pytest.raises(RejectedRecordsError, match="Record 1: its timestamp") as caught:
            check(1_500_000, late_ms)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
        (error,) = caught.value.record_errors
        bound = "latest allowed is 2" if late_ms > 2_000_000 else "earliest allowed is 1"
        assert error.number == 1
        assert f"its timestamp is {late_ms} ms, and the {bound}000000 ms" in error.reason


@settings(max_examples=150)
@given(
    st.lists(st.integers(-9_000, 9_000) | st.integers(-(1 << 40), 1 << 40), min_size=1),
    st.integers(1, 400),
    st.sampled_from(CODECS),
)
def test_the_newest_time_agrees_with_the_records(
    deltas_ms: list[int], repeated: int, codec: Compression
) -> None:
    """The times need not rise, and none of them need be the base timestamp."""
    deltas_ms = deltas_ms * repeated
    records = (
        b"\0" + encode_varint(delta_ms) + encode_varint(number) + b"\x01\x02v\0"
        for number, delta_ms in enumerate(deltas_ms)
    )
    body = b"".join(encode_varint(len(each)) + each for each in records)
    check = RecordCheck(codec, compress(codec, body), len(deltas_ms))
    assert not list(filter(None, check))
    assert check.newest_ms == max(deltas_ms)


def test_no_time_goes_beyond_64_bits() -> None:
    batch = built([(1 << 62, b"k", b"v", ())])
    sizes = b"\x22" + b"\0" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\0\x02k\x02v\0"
    error = refusal(sealed(batch, sizes))
    assert error.code is ErrorCode.INVALID_TIMESTAMP


def test_a_compacted_topic_needs_keys() -> None:
    for records in ([(1, None, b"v", ())], [(1, b"k", b"", ()), (1, None, b"v" * 9000, ())]):
        body = body_of(records)
        assert not list(RecordCheck(Compression.NONE, body, len(records)))
        with pytest.raises(RejectedRecordsError, match="it has no key, and the topic is"):
            list(RecordCheck(Compression.NONE, body, len(records), keys_required=True))


@pytest.mark.parametrize("codec", CODECS)
def test_every_rejected_record_is_named(codec: Compression) -> None:
    """With one reason: that it has no key comes before its time."""
    records: list[Any] = [(1_500_000, b"k", b"v" * 200, ())] * 3000
    records[7] = records[2500] = (1_500_000, None, b"v", ())
    records[1200] = (9_000_000, b"k", b"v", ())
    records[2900] = (9_000_000, None, b"v", ())
    body = memoryview(built(records, codec))[wire.HEADER_SIZE :]
    times = TimeDeltas.of(1_500_000, 1_000_000, 2_000_000)
    check = RecordCheck(codec, body, len(records), times=times, keys_required=True)
    with pytest.raises(RejectedRecordsError, match="4 records are rejected") as caught:
        list(check)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    none, late = ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP
    errors = [(each.number, each.code) for each in caught.value.record_errors]
    assert errors == [(7, none), (1200, late), (2500, none), (2900, none)]


def test_a_batch_that_cannot_be_read_names_no_records() -> None:
    records: list[Any] = [(1, None, b"v", ()), (1, b"k", b"v", ())]
    body = body_of(records)[:-1]
    with pytest.raises(wire.BatchError, match="the batch ends inside a record") as caught:
        list(RecordCheck(Compression.NONE, body, 2, keys_required=True))
    assert not isinstance(caught.value, RejectedRecordsError)


def test_the_check_ends_with_so_many_rejected_records() -> None:
    count = 50_000
    body = body_of([(1, None, b"v", ())] * count)
    check = RecordCheck(Compression.NONE, body, count, keys_required=True)
    slices: list[None] = []
    with pytest.raises(RejectedRecordsError) as caught:
        slices.extend(check)
    numbers = [each.number for each in caught.value.record_errors]
    assert numbers == list(range(record_check.RECORD_ERRORS_MAX))


# ------------------------------------------------------------------------------ the fuzz


@settings(max_examples=150)
@given(RECORDS, st.sampled_from(CODECS))
def test_every_sound_batch_passes(records: list[Any], codec: Compression) -> None:
    batch = built(records, codec)
    checked(batch)
    read_by_all(batch)


MUTATION = st.tuples(st.integers(0, 1 << 20), st.integers(0, 255), st.sampled_from("=+-x"))


def mutated(data: bytes, changes: list[tuple[int, int, str]]) -> bytes:
    made = bytearray(data)
    for where, byte, kind in changes:
        at = where % (len(made) + 1)
        if kind == "=":
            made[at : at + 1] = bytes([byte])
        elif kind == "+":
            made[at:at] = bytes([byte])
        elif kind == "-":
            del made[at : at + 1 + byte % 4]
        else:
            made[at:] = made[at + byte % 9 :] + made[:at][: byte % 7]
    return bytes(made)


@settings(max_examples=500)
@given(
    RECORDS,
    st.sampled_from(CODECS),
    st.lists(MUTATION, max_size=3),
    st.lists(MUTATION, max_size=2),
    st.integers(-2, 3),
)
@example([(0, b"k", b"v", [])], Compression.LZ4, [], [], 1)
def test_whatever_passes_is_read_by_every_client(
    records: list[Any],
    codec: Compression,
    inside: list[tuple[int, int, str]],
    outside: list[tuple[int, int, str]],
    miscounted: int,
) -> None:
    """With changes of the records, of the compressed records, and of the header."""
    batch = built(records, codec)
    plain = decompress(codec, batch[wire.HEADER_SIZE :])
    body = mutated(compress(codec, mutated(plain, inside)), outside)
    count = max(0, len(records) + miscounted)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    changed = sealed(batch, body)
    try:
        checked(changed)
    except wire.BatchError:
        return
    read_by_all(changed)


@settings(max_examples=200)
@given(RECORDS, st.lists(st.integers(0, 1 << 20), max_size=12), st.lists(MUTATION, max_size=1))
def test_it_does_not_matter_where_the_parts_end(
    records: list[Any], cuts: list[int], changes: list[tuple[int, int, str]]
) -> None:
    body = mutated(body_of(records), changes)
    ends = sorted({*(cut % (len(body) + 1) for cut in cuts), len(body)})
    starts = [0, *ends[:-1]]
    parts = [body[start:end] for start, end in zip(starts, ends, strict=True)]
    verdicts = [_verdict(each, len(records)) for each in ([body], parts)]
    assert verdicts[0] == verdicts[1]


def _verdict(parts: list[bytes], count: int) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_check, "decompressed", lambda *_, **__: iter(parts))
        try:
            list(record_check.RecordCheck(Compression.ZSTD, b"", count))
        except wire.BatchError as error:
            return str(error)
    return "sound"


# -------------------------------------------------------------------------------- slices


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_is_checked_in_slices(codec: Compression) -> None:
    assert checked(built([(1, b"k", b"v", ())] * 1000, codec)) == 0
    slices = checked(built([(1, b"k", b"v", ())] * 10_500, codec))
    assert 10 <= slices <= 30


@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_grows_is_checked_in_slices_too(codec: Compression) -> None:
    """Only a raw block of snappy is one piece, of at most 22 times its size."""
    size = 20 * 1024 * 1024
    batch = built([(1, None, bytes(size), ())], codec)
    slices = checked(batch)
    assert codec is Compression.SNAPPY or slices >= size // record_check.SLICE_BYTES - 1


def test_decompression_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = built([(1, None, bytes(1 << 20), ())], Compression.ZSTD)
    monkeypatch.setattr(record_check, "DEFAULT_MAX_DECOMPRESSED_BYTES", 1 << 20)
    assert "grows past" in str(refusal(batch))


def test_compressed_nothing_again_and_again_is_refused() -> None:
    batch = built([(1, None, b"v", ())], Compression.GZIP)
    body = compress(Compression.GZIP, b"") * 5000 + bytes(batch[wire.HEADER_SIZE :])
    assert "has too many empty parts" in str(refusal(sealed(batch, body)))
