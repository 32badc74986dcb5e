"""The records of consumer groups, as bytes that follow from Kafka's definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.coordinator.group.consumer.records import (
    ClassicMember,
    ConsumerKey,
    CurrentAssignment,
    GroupValue,
    Kind,
    MemberMetadata,
    MemberState,
    ResolvedRegex,
    TargetEpoch,
    current_record,
    decode_current,
    decode_group_value,
    decode_member,
    decode_regex,
    decode_target,
    decode_target_epoch,
    group_value_record,
    member_record,
    regex_record,
    target_epoch_record,
    target_record,
    tombstone,
)
from broker.coordinator.group.records import decode_key
from broker.coordinator.group.types import MemberProtocol
from broker.coordinator.step import KeyValue

A, B = b"A" * 16, b"B" * 16
TWO = {B: frozenset({0}), A: frozenset({258, 1})}
TWO_BYTES = (
    b"\x03" + A + b"\x03\0\0\0\x01\0\0\x01\x02\0" + B + b"\x02\0\0\0\0\0"
)  # ascending, each with its tags
MEMBER = MemberMetadata("i", None, "c", "/h", ("t", "u"), "x.*", 60_000, "uniform")
CLASSIC = MEMBER._replace(classic=ClassicMember(10_000, (MemberProtocol("range", b"\1"),)))
CURRENT = CurrentAssignment(7, 6, MemberState.UNREVOKED_PARTITIONS, TWO, {B: frozenset({3})})
SINCE = CURRENT._replace(epochs={A: {1: 5}, B: {3: 6}})  # the others since epoch 7
MEMBER_BYTES = b"\0\0\x02i\0\x02c\x03/h\x03\x02t\x02u\x04x.*\0\0\xea\x60\x08uniform"

CASES: list[tuple[KeyValue, bytes, bytes, ConsumerKey, Callable[[bytes], Any], Any]] = [
    (
        group_value_record("g", GroupValue(7, -2)),
        b"\0\x03\0\x01g",
        b"\0\0\0\0\0\x07\x01\0\x08" + b"\xff" * 7 + b"\xfe",
        ConsumerKey(Kind.GROUP, "g"),
        decode_group_value,
        GroupValue(7, -2),
    ),
    (
        group_value_record("g", GroupValue(7)),
        b"\0\x03\0\x01g",
        b"\0\0\0\0\0\x07\0",
        ConsumerKey(Kind.GROUP, "g"),
        decode_group_value,
        GroupValue(7),
    ),
    (
        member_record("g", "m", MEMBER),
        b"\0\x05\0\x01g\0\x01m",
        MEMBER_BYTES + b"\0",
        ConsumerKey(Kind.MEMBER, "g", "m"),
        decode_member,
        MEMBER,
    ),
    (
        member_record("g", "m", CLASSIC),
        b"\0\x05\0\x01g\0\x01m",
        MEMBER_BYTES + b"\x01\0\x10\x01\0\0\x27\x10\x02\x06range\x02\x01\0\0",
        ConsumerKey(Kind.MEMBER, "g", "m"),
        decode_member,
        CLASSIC,
    ),
    (
        target_epoch_record("g", TargetEpoch(7)),
        b"\0\x06\0\x01g",
        b"\0\0\0\0\0\x07\0",
        ConsumerKey(Kind.TARGET_EPOCH, "g"),
        decode_target_epoch,
        TargetEpoch(7),
    ),
    (
        target_epoch_record("g", TargetEpoch(7, 258)),
        b"\0\x06\0\x01g",
        b"\0\0\0\0\0\x07\x01\0\x08\0\0\0\0\0\0\1\2",
        ConsumerKey(Kind.TARGET_EPOCH, "g"),
        decode_target_epoch,
        TargetEpoch(7, 258),
    ),
    (
        target_record("g", "m", TWO),
        b"\0\x07\0\x01g\0\x01m",
        b"\0\0" + TWO_BYTES + b"\0",
        ConsumerKey(Kind.TARGET, "g", "m"),
        decode_target,
        TWO,
    ),
    (
        current_record("g", "m", CURRENT),
        b"\0\x08\0\x01g\0\x01m",
        b"\0\0\0\0\0\x07\0\0\0\x06\x01" + TWO_BYTES + b"\x02" + B + b"\x02\0\0\0\x03\0\0",
        ConsumerKey(Kind.CURRENT, "g", "m"),
        decode_current,
        CURRENT,
    ),
    (
        current_record("g", "m", SINCE),
        b"\0\x08\0\x01g\0\x01m",
        b"\0\0\0\0\0\x07\0\0\0\x06\x01\x03"
        + (A + b"\x03\0\0\0\x01\0\0\x01\x02" + b"\x01\0\x09\x03\0\0\0\x05\0\0\0\x07")
        + (B + b"\x02\0\0\0\0\0")
        + (b"\x02" + B + b"\x02\0\0\0\x03" + b"\x01\0\x05\x02\0\0\0\x06\0"),
        ConsumerKey(Kind.CURRENT, "g", "m"),
        decode_current,
        SINCE,
    ),
    (
        regex_record("g", "t.*", ResolvedRegex(("t", "tt"), 5, 6)),
        b"\0\x10\0\x01g\0\x03t.*",
        b"\0\0\x03\x02t\x03tt" + (5).to_bytes(8, "big") + (6).to_bytes(8, "big") + b"\0",
        ConsumerKey(Kind.REGEX, "g", "t.*"),
        decode_regex,
        ResolvedRegex(("t", "tt"), 5, 6),
    ),
]


@pytest.mark.parametrize(("record", "key", "value", "read_key", "decode", "read"), CASES)
def test_records_have_kafkas_layouts(
    record: KeyValue,
    key: bytes,
    value: bytes,
    read_key: ConsumerKey,
    decode: Callable[[bytes], Any],
    read: Any,
) -> None:
    assert record == (key, value)
    assert decode_key(key) == read_key
    assert decode(value) == read


def test_partitions_without_assignment_epochs_are_owned_since_the_member_epoch() -> None:
    assert [CURRENT.owned_since(*each) for each in ((A, 1), (B, 3), (A, 2))] == [7, 7, None]
    assert [SINCE.owned_since(*each) for each in ((A, 1), (A, 258), (B, 3))] == [5, 7, 6]


def test_assignment_epochs_that_are_not_one_for_each_partition_are_refused() -> None:
    value = current_record("g", "m", SINCE).value
    assert value is not None
    epochs = b"\x01\0\x09\x03\0\0\0\x05\0\0\0\x07"
    assert epochs in value
    with pytest.raises(ValueError, match="2 partitions with 1 assignment epochs"):
        decode_current(value.replace(epochs, b"\x01\0\x05\x02\0\0\0\x05"))


@pytest.mark.parametrize(("record", "decode"), [(each[0], each[4]) for each in CASES])
def test_damaged_values_are_refused(record: KeyValue, decode: Callable[[bytes], Any]) -> None:
    assert record.value is not None
    for end in range(len(record.value)):
        with pytest.raises(ValueError, match=r"ends early|length|elements"):
            decode(record.value[:end])
    with pytest.raises(ValueError, match="version 1"):
        decode(b"\0\1" + record.value[2:])


def test_damaged_keys_are_refused() -> None:
    for record in (each[0] for each in CASES):
        for end in range(len(record.key)):
            with pytest.raises(ValueError, match="ends early"):
                decode_key(record.key[:end])


def test_tombstones_have_the_keys_of_their_records() -> None:
    assert tombstone(Kind.GROUP, "g") == (CASES[0][1], None)
    assert tombstone(Kind.PARTITIONS, "g") == (b"\0\x04\0\x01g", None)
    assert tombstone(Kind.CURRENT, "g", "m") == (b"\0\x08\0\x01g\0\x01m", None)


def test_partitions_of_no_number_and_unknown_states_can_be_read() -> None:
    assert decode_target(b"\0\0\x02" + A + b"\x01\0\0") == {}
    unknown = current_record("g", "m", CURRENT).value
    assert unknown is not None
    assert decode_current(unknown[:10] + b"\x09" + unknown[11:]).state is MemberState.UNKNOWN


def test_a_hash_or_a_time_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="hash"):
        decode_group_value(b"\0\0\0\0\0\x07\x01\0\x01\0")
    with pytest.raises(ValueError, match="time"):
        decode_target_epoch(b"\0\0\0\0\0\x07\x01\0\x01\0")


@pytest.mark.parametrize(("first", "read"), [(b"\xff", MEMBER), (b"\0", CLASSIC)])
def test_only_a_negative_number_says_that_a_structure_is_not_there(
    first: bytes, read: MemberMetadata
) -> None:
    """As Kafka reads it, also in a tagged field that is there."""
    rest = b"\0\0\x27\x10\x02\x06range\x02\x01\0\0" if read is CLASSIC else b""
    field = b"\x01\0" + bytes((len(first + rest),)) + first + rest
    assert decode_member(MEMBER_BYTES + field) == read
