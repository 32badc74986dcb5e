"""The compiled module beside Python, which is the reference: equal results for sound records and
for hostile bytes, and a choice between the two."""

from __future__ import annotations

import struct
import sys
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stele.column_decoder import columns_of
from stele.consumer.positions import PartitionPosition, RawBatch
from stele.errors import ConfigError, UnreadableBatchError
from stele.ids import TopicPartition
from stele.records import ConsumerRecord, TimestampType
from stele.wire import native
from stele.wire.batch import (
    HEADER_SIZE,
    PREFIX_SIZE,
    BatchBuilder,
    encode,
    read_header,
    seal,
    stamp,
)
from stele.wire.batch_errors import CorruptBatchError
from stele.wire.consumed import Source, decode_consumer_records
from stele.wire.record import Record, decode_records
from stele.wire.record_check import ANY_TIME, TimeDeltas, whole_records
from storage.compaction.stored_records import StoredRecord, stored_records

MODULE, READER = native.load("auto")
needs_module = pytest.mark.skipif(MODULE is None, reason=READER)

SHORT = [b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80\x01", b"\xff\x7f", b"\x80\x80\x01", b"\x80\x00"]
LONG = [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x1f", b"\xff" * 9 + b"\x01", b"\xff" * 10]
VARINTS = st.sampled_from([*SHORT, *LONG])
SOUND = st.lists(
    st.tuples(
        st.integers(-(2**62), 2**62) | st.integers(-5, 300),
        st.none() | st.binary(max_size=70) | st.just(b"k" * 9000),
        st.none() | st.binary(max_size=70) | st.just(b"v" * 70_000),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=4)
        | st.just([("n", b"1")] * 51),
    ),
    min_size=1,
    max_size=6,
)
KINDS = list(TimestampType)
BOUNDS = st.sampled_from([-(2**64), -(2**63), -1, 0, 1, 127, 128, 2**62, 2**63 - 1, 2**64])


def body_of(records: list[Any]) -> bytes:
    builder = BatchBuilder()
    for timestamp_ms, key, value, headers in records:
        builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers)
    return bytes(builder.build()[HEADER_SIZE:])


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Sound records, some of whose bytes are then replaced, cut out or doubled."""
    data = bytearray(body_of(draw(SOUND)))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        removed = draw(st.sampled_from([0, 1, 2, 5]))
        data[start : start + removed] = draw(VARINTS | st.binary(max_size=4))
    return bytes(data)


def raw_batch(data: bytes, count: int) -> RawBatch:
    """A batch that claims so many records. Its CRC is right."""
    batch = encode([Record(0, 2**40, None, b"", ())])[:HEADER_SIZE] + data
    struct.pack_into(">i", batch, 8, len(batch) - PREFIX_SIZE)
    struct.pack_into(">i", batch, HEADER_SIZE - 4, count)
    struct.pack_into(">i", batch, 23, 2**20)  # the last offset, which records may not surpass
    seal(batch, 0, len(batch))
    return RawBatch(TopicPartition("t", 0), bytes(batch), 0, read_header(batch), 0)


def by_both(work: Any) -> tuple[Any, Any]:
    """What Python makes of it, and what the module does."""
    results = []
    for module in (None, MODULE):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(native, "NATIVE", module)
            try:
                results.append(work())
            except (CorruptBatchError, UnreadableBatchError) as error:
                results.append(str(error))
    return results[0], results[1]


@needs_module
@given(bodies(), st.integers(-1, 8), st.none() | st.integers(-1, 2**62))
@example(b"", 0, None)
@example(b"", 2**31 - 1, None)
def test_records_are_decoded_as_in_python(data: bytes, count: int, append_ms: int | None) -> None:
    def decoded() -> list[Record]:
        return decode_records(
            data, count, base_offset=7, base_timestamp_ms=2**62, append_time_ms=append_ms
        )

    reference, compiled = by_both(decoded)
    assert compiled == reference
    if isinstance(compiled, list):
        assert [type(each) for each in compiled] == [Record] * len(reference)


@needs_module
@given(bodies(), st.integers(-1, 8), st.none() | st.integers(-1, 2**62), st.sampled_from(KINDS))
@example(b"", 0, None, TimestampType.CREATE_TIME)
@example(b"", 2**31 - 1, None, TimestampType.CREATE_TIME)
def test_a_consumers_records_are_decoded_as_in_python(
    data: bytes, count: int, append_ms: int | None, kind: TimestampType
) -> None:
    def decoded() -> list[ConsumerRecord]:
        return decode_consumer_records(
            data,
            count,
            base_offset=7,
            base_timestamp_ms=2**62,
            append_time_ms=append_ms,
            source=Source("orders", 3, kind, 5),
        )

    def plain() -> list[Record]:
        return decode_records(
            data, count, base_offset=7, base_timestamp_ms=2**62, append_time_ms=append_ms
        )

    reference, compiled = by_both(decoded)
    assert compiled == reference
    assert plain_fields(reference) == plain_fields(by_both(plain)[0])
    if isinstance(compiled, list):
        assert [type(each) for each in compiled] == [ConsumerRecord] * len(reference)
        for each in compiled:
            assert (each.topic, each.partition, each.leader_epoch) == ("orders", 3, 5)
            assert each.timestamp_type is kind


def plain_fields(decoded: Any) -> Any:
    """What ``decode_records`` gives of each record, too; an error's text as it is."""
    if isinstance(decoded, str):
        return decoded
    return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in decoded]


@needs_module
@given(
    st.lists(st.tuples(bodies(), st.integers(0, 8)), min_size=1, max_size=3),
    st.integers(1, 9),
    st.integers(0, 4),
    st.booleans(),
)
def test_polls_hand_out_as_in_python(
    drawn: list[tuple[bytes, int]], limit: int, first_offset: int, check_crcs: bool
) -> None:
    data = bytearray()
    for number, (body, count) in enumerate(drawn):
        batch = bytearray(raw_batch(body, count).data)
        stamp(batch, 0, base_offset=number << 21, leader_epoch=number)
        data += batch

    def polled() -> list[Any]:
        """Each poll's records or error, and the position behind it."""
        retry: Any = SimpleNamespace(at=0.0)
        position = PartitionPosition(TopicPartition("orders", 3), retry)
        position.seek(first_offset)
        position.take_fetched(bytes(data))
        seen: list[Any] = []
        while position.has_buffer:
            try:
                seen.append(position.hand_out(limit, check_crcs=check_crcs))
            except UnreadableBatchError as error:
                seen.append(str(error))
            seen.append((position.offset, position.consumed_epoch, position.buffered_bytes))
        return seen

    reference, compiled = by_both(polled)
    assert compiled == reference


@needs_module
@given(st.lists(st.tuples(bodies(), st.integers(0, 8)), min_size=1, max_size=3), st.booleans())
@example([(b"", 0)], True)
def test_columns_are_decoded_as_in_python(drawn: list[tuple[bytes, int]], headers: bool) -> None:
    batches = [raw_batch(data, count) for data, count in drawn]

    def decoded() -> list[pa.RecordBatch]:
        return list(columns_of(batches, include_headers=headers))

    reference, compiled = by_both(decoded)
    assert compiled == reference
    if isinstance(compiled, list):
        for each in compiled:
            each.validate(full=True)


@needs_module
@given(bodies(), st.integers(0, 8))
@example(b"", 0)
def test_a_compaction_finds_records_as_in_python(data: bytes, count: int) -> None:
    reference, compiled = by_both(lambda: stored_records(data, count))
    assert compiled == reference
    if isinstance(compiled, list):
        assert [type(each) for each in compiled] == [StoredRecord] * len(reference)


@needs_module
@given(
    bodies(),
    st.integers(0, 4),
    st.integers(0, 8),
    st.builds(TimeDeltas, BOUNDS, BOUNDS, st.just(0)) | st.just(ANY_TIME),
    st.booleans(),
    BOUNDS | st.just(-(2**65)),
)
def test_records_are_checked_as_in_python(
    data: bytes, number: int, stop: int, times: TimeDeltas, keys_required: bool, newest_ms: int
) -> None:
    for position in (0, 1, len(data), len(data) + 1):
        reference, compiled = by_both(
            lambda start=position: whole_records(
                data, start, number, stop, times, keys_required, newest_ms
            )
        )
        assert compiled == reference


@needs_module
def test_a_large_body_is_checked_and_decoded_as_in_python() -> None:
    data = body_of([(n, b"key-%d" % n, b"v" * 90, []) for n in range(3000)])
    for stop in (2999, 3000, 3001):
        reference, compiled = by_both(
            lambda stop=stop: whole_records(data, 0, 0, stop, ANY_TIME, True, -1)
        )
        assert compiled == reference
    reference, compiled = by_both(
        lambda: decode_records(data, 3000, base_offset=0, base_timestamp_ms=0, append_time_ms=None)
    )
    assert compiled == reference
    assert len(compiled) == 3000


# ------------------------------------------------------------------------------- the choice


def a_module_of(monkeypatch: pytest.MonkeyPatch, revision: int | None) -> Any:
    """A stand-in for the installed module; None: there is none."""
    module = None if revision is None else SimpleNamespace(REVISION=revision)
    monkeypatch.setitem(sys.modules, "stele_native", module)
    return module


def test_the_module_is_used_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    module = a_module_of(monkeypatch, native.REVISION)
    for setting in ("auto", "1"):
        loaded, reader = native.load(setting)
        assert loaded is module
        assert reader == f"compiled, revision {native.REVISION}"
    assert native.load("0") == (None, "Python, as STELE_NATIVE=0 says")


@pytest.mark.parametrize(
    ("revision", "reason"),
    [
        (None, "stele_native"),
        (native.REVISION - 1, f"has revision {native.REVISION - 1}, and {native.REVISION} is"),
    ],
)
def test_without_the_right_module_python_does_the_work(
    monkeypatch: pytest.MonkeyPatch, revision: int | None, reason: str
) -> None:
    a_module_of(monkeypatch, revision)
    loaded, reader = native.load("auto")
    assert loaded is None
    assert reader.startswith("Python: ")
    assert reason in reader
    with pytest.raises(ConfigError, match="STELE_NATIVE=1") as refused:
        native.load("1")
    assert reason in str(refused.value)


def test_a_wrong_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match="STELE_NATIVE=yes: use auto, 1 or 0"):
        native.load("yes")
