"""Control records, byte for byte as Kafka writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.wire import batch as wire
from stele.wire.control_records import (
    ControlType,
    EndMarker,
    control_key,
    control_type,
    decode_end_marker,
    end_marker_batch,
)


def test_the_key_of_a_control_record() -> None:
    key = control_key(ControlType.LEADER_CHANGE)
    assert key == b"\0\0\0\2"
    assert control_type(key) is ControlType.LEADER_CHANGE
    assert control_type(b"\0\0\0\x63") is None
    with pytest.raises(wire.CorruptBatchError):
        control_type(b"\0")
    with pytest.raises(wire.CorruptBatchError):
        control_type(None)


@given(
    producer_id=st.integers(0, (1 << 63) - 1),
    producer_epoch=st.integers(0, 0x7FFF),
    commit=st.booleans(),
    coordinator_epoch=st.integers(-1, 0x7FFFFFFF),
    timestamp_ms=st.integers(0, 1 << 45),
)
def test_an_end_marker_is_a_batch_of_one_record(
    producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> None:
    batch = end_marker_batch(
        producer_id,
        producer_epoch,
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=timestamp_ms,
    )
    header = wire.read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert not header.is_log_append_time
    assert header.delete_horizon_ms is None
    assert (header.producer_id, header.producer_epoch) == (producer_id, producer_epoch)
    assert (header.base_sequence, header.last_sequence) == (wire.NO_SEQUENCE, wire.NO_SEQUENCE)
    assert (header.record_count, header.last_offset_delta) == (1, 0)
    assert header.max_timestamp_ms == timestamp_ms
    (record,) = wire.decode(batch)
    assert record.timestamp_ms == timestamp_ms
    assert decode_end_marker(record) == EndMarker(commit, coordinator_epoch)


def test_the_bytes_of_an_end_marker() -> None:
    # Kafka's schema of the key: version, type; of the value: version, coordinator epoch.
    for commit, kind in ((False, 0), (True, 1)):
        batch = end_marker_batch(7, 2, commit=commit, coordinator_epoch=0x01020304, timestamp_ms=9)
        (record,) = wire.decode(batch)
        assert record.key == bytes([0, 0, 0, kind])
        assert record.value == b"\0\0\1\2\3\4"
        assert len(batch) == wire.HEADER_SIZE + 17


def marker(key: bytes | None, value: bytes | None) -> wire.Record:
    return wire.Record(0, 0, key, value, ())


@pytest.mark.parametrize("kind", [k for k in ControlType if k > ControlType.COMMIT])
def test_other_control_records_end_no_transaction(kind: ControlType) -> None:
    assert decode_end_marker(marker(control_key(kind), None)) is None


def test_a_control_record_of_an_unknown_type_ends_no_transaction() -> None:
    assert decode_end_marker(marker(b"\0\0\0\x63", b"")) is None


def test_a_later_version_of_a_marker_begins_with_the_same_fields() -> None:
    record = marker(control_key(ControlType.ABORT), b"\0\1\0\0\0\5more")
    assert decode_end_marker(record) == EndMarker(commit=False, coordinator_epoch=5)


@pytest.mark.parametrize(
    "value", [None, b"", b"\0\0\0\0\0", b"\xff\xff\0\0\0\1"], ids=["none", "empty", "cut", "v-1"]
)
def test_a_damaged_marker_is_corrupt(value: bytes | None) -> None:
    with pytest.raises(wire.CorruptBatchError):
        decode_end_marker(marker(control_key(ControlType.COMMIT), value))


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_damaged_key_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(wire.CorruptBatchError):
        decode_end_marker(marker(key, b"\0\0\0\0\0\0"))
