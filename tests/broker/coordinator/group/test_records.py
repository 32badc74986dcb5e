"""Kafka's layouts, against bytes written out by hand from its schemas."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinator.group.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    RecordedGroup,
    RecordedMember,
    decode_group,
    decode_key,
    decode_offset,
    group_record,
    offset_record,
)
from stele.ids import TopicPartition

TOPIC_ID = bytes(range(16))
KEY = OffsetKey("g", TopicPartition("topic", 7))
GROUP = RecordedGroup(
    "consumer",
    5,
    "range",
    "m-1",
    1_000,
    (
        RecordedMember("m-1", None, "c", "/h", 300, 200, b"\1\2", b"\3"),
        RecordedMember("m-2", "i", "c", "/h", 301, 201, b"", b""),
    ),
)


def test_the_key_of_an_offset() -> None:
    expected = b"\0\1" + b"\0\1g" + b"\0\5topic" + b"\0\0\0\7"
    assert offset_record(KEY, None) == (expected, None)
    assert decode_key(expected) == KEY
    assert decode_key(b"\0\0" + expected[2:]) == KEY
    with pytest.raises(ValueError, match="goes on"):
        decode_key(expected[:-4] + b"x" + expected[-4:])


def test_an_offset_with_a_topic_id_is_version_4() -> None:
    value = CommittedOffset(258, 3, "mé", 1_000, topic_id=TOPIC_ID)
    expected = b"\0\4\0\0\0\0\0\0\1\2\0\0\0\3\4m\xc3\xa9\0\0\0\0\0\0\3\xe8\1\0\x10" + TOPIC_ID
    assert offset_record(KEY, value).value == expected
    assert decode_offset(expected) == value


def test_an_offset_without_a_topic_id_has_no_tag() -> None:
    value = CommittedOffset(1, -1, "", 2)
    expected = b"\0\4" + b"\0" * 7 + b"\1" + b"\xff" * 4 + b"\1" + b"\0" * 7 + b"\2" + b"\0"
    assert offset_record(KEY, value).value == expected
    assert decode_offset(expected) == value


def test_an_offset_with_its_own_expiry_is_version_1() -> None:
    value = CommittedOffset(1, -1, "m", 2, expire_time_ms=3)
    expected = b"\0\1" + b"\0" * 7 + b"\1" + b"\0\1m" + b"\0" * 7 + b"\2" + b"\0" * 7 + b"\3"
    assert offset_record(KEY, value).value == expected
    assert decode_offset(expected) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            b"\0\0" + b"\0" * 7 + b"\1" + b"\0\1m" + b"\0" * 7 + b"\2",
            CommittedOffset(1, -1, "m", 2),
        ),
        (
            b"\0\2" + b"\0" * 7 + b"\1" + b"\0\1m" + b"\0" * 7 + b"\2",
            CommittedOffset(1, -1, "m", 2),
        ),
        (
            b"\0\3" + b"\0" * 7 + b"\1" + b"\0\0\0\6" + b"\0\1m" + b"\0" * 7 + b"\2",
            CommittedOffset(1, 6, "m", 2),
        ),
        (  # of a later Kafka: an unknown tag is skipped
            b"\0\4" + b"\0" * 7 + b"\1" + b"\0\0\0\6" + b"\2m" + b"\0" * 7 + b"\2" + b"\1\5\2xy",
            CommittedOffset(1, 6, "m", 2),
        ),
    ],
)
def test_other_versions_of_an_offset(value: bytes, expected: CommittedOffset) -> None:
    assert decode_offset(value) == expected


def test_offsets_of_the_usual_length_that_are_none_of_the_usual_form() -> None:
    """Most offsets are of one form, which is read at once. These look like it in part."""
    field = "\1\0\x10"  # where the tag of the topic's id would be
    usual = offset_record(KEY, CommittedOffset(1, 2, "", 3, topic_id=TOPIC_ID)).value
    assert usual is not None
    for value in (
        CommittedOffset(1, -1, f"ab\1cdefghij{field}", 2, expire_time_ms=3),
        CommittedOffset(1, -1, f"abcdefgh{field}ijklmno", 2),
    ):
        data = offset_record(KEY, value).value
        assert data is not None
        assert len(data) == len(usual)
        assert decode_offset(data) == value
    other_tag = usual[:-18] + b"\5\x10" + TOPIC_ID
    assert decode_offset(other_tag) == CommittedOffset(1, 2, "", 3)


def test_an_offset_that_ends_early_or_goes_on_is_read_or_refused() -> None:
    usual = offset_record(KEY, CommittedOffset(1, 2, "", 3, topic_id=TOPIC_ID)).value
    assert usual is not None
    for end in range(len(usual)):
        with pytest.raises(ValueError, match="offset"):
            decode_offset(usual[:end])
    assert decode_offset(usual + b"\0") == decode_offset(usual)


def test_a_group_is_version_3() -> None:
    record = group_record("g", GROUP)
    assert record.key == b"\0\2" + b"\0\1g"
    assert decode_key(record.key) == GroupKey("g")
    assert record.value == (
        b"\0\3"
        b"\0\x08consumer"
        b"\0\0\0\5"
        b"\0\5range"
        b"\0\3m-1"
        b"\0\0\0\0\0\0\3\xe8"
        b"\0\0\0\2"
        b"\0\3m-1\xff\xff\0\1c\0\2/h\0\0\1\x2c\0\0\0\xc8\0\0\0\2\1\2\0\0\0\1\3"
        b"\0\3m-2\0\1i\0\1c\0\2/h\0\0\1\x2d\0\0\0\xc9\0\0\0\0\0\0\0\0"
    )
    assert decode_group(record.value) == GROUP


def test_the_oldest_group_has_one_timeout() -> None:
    value = b"\0\0" + b"\0\1c" + b"\0\0\0\1" + b"\xff\xff" * 2 + b"\0\0\0\1"
    value += b"\0\1m\0\1c\0\1h" + b"\0\0\0\x09" + b"\0\0\0\0" * 2
    member = RecordedMember("m", None, "c", "h", 9, 9, b"", b"")
    assert decode_group(value) == RecordedGroup("c", 1, None, None, -1, (member,))


@pytest.mark.parametrize(("version", "state_time_ms"), [(1, -1), (2, 7)])
def test_older_groups(version: int, state_time_ms: int) -> None:
    value = bytes((0, version)) + b"\0\1c" + b"\0\0\0\1" + b"\xff\xff" * 2
    if state_time_ms >= 0:
        value += b"\0" * 7 + b"\7"
    value += b"\0\0\0\1" + b"\0\1m\0\1c\0\1h" + b"\0\0\0\x08" + b"\0\0\0\x09" + b"\0" * 8
    member = RecordedMember("m", None, "c", "h", 8, 9, b"", b"")
    assert decode_group(value) == RecordedGroup("c", 1, None, None, state_time_ms, (member,))


def test_a_flexible_group() -> None:
    value = b"\0\4" + b"\2c" + b"\0\0\0\1" + b"\2r" + b"\2m" + b"\0" * 7 + b"\1" + b"\2"
    value += b"\2m\0\2c\2h" + b"\0\0\0\x08" + b"\0\0\0\x09" + b"\2s\2a\0" + b"\0"
    member = RecordedMember("m", None, "c", "h", 8, 9, b"s", b"a")
    assert decode_group(value) == RecordedGroup("c", 1, "r", "m", 1, (member,))


@pytest.mark.parametrize("version", [-1, 9, 17])
def test_other_keys_are_not_known(version: int) -> None:
    with pytest.raises(ValueError, match="version"):
        decode_key(version.to_bytes(2, "big", signed=True) + b"\0\1g")


@pytest.mark.parametrize("read", [decode_offset, decode_group])
def test_values_of_the_future_are_refused(read: object) -> None:
    assert callable(read)
    with pytest.raises(ValueError, match="version 5"):
        read(b"\0\5" + bytes(40))


texts = st.text(max_size=6)


@settings(max_examples=100)
@given(
    st.builds(
        CommittedOffset,
        offset=st.integers(0, 2**62),
        leader_epoch=st.integers(-1, 9),
        metadata=texts,
        commit_time_ms=st.integers(0, 2**42),
        expire_time_ms=st.just(-1),
        topic_id=st.binary(min_size=16, max_size=16),
    ),
    texts,
    texts,
    st.integers(0, 2**31 - 1),
)
def test_offsets_come_back(
    value: CommittedOffset, group_id: str, topic: str, partition: int
) -> None:
    key = OffsetKey(group_id, TopicPartition(topic, partition))
    record = offset_record(key, value)
    assert record.value is not None
    assert (decode_key(record.key), decode_offset(record.value)) == (key, value)


@settings(max_examples=100)
@given(st.integers(0, 200), st.integers(0, 255))
def test_damaged_records_are_refused_or_read(position: int, byte: int) -> None:
    """Whatever a record says, reading it ends, and with nothing but a ValueError."""
    for record in (group_record("g", GROUP), offset_record(KEY, CommittedOffset(1, 2, "m", 3))):
        assert record.value is not None
        for read, data in ((decode_key, record.key), (decode_group, record.value)):
            damaged = bytearray(data)
            damaged[position % len(damaged)] = byte
            for cut in (bytes(damaged), bytes(damaged[: position % len(damaged)])):
                try:
                    read(cut)
                except ValueError:
                    continue
