"""The records of share groups in Kafka's layouts."""

from __future__ import annotations

import struct

import pytest

from broker.coordinator.group.records import decode_key
from broker.coordinator.group.share.records import (
    ShareAssignment,
    ShareGroupValue,
    ShareKey,
    ShareKind,
    ShareMemberMetadata,
    ShareTargetEpoch,
    StatePartitions,
    decode_share_current,
    decode_share_group,
    decode_share_key,
    decode_share_member,
    decode_share_target,
    decode_share_target_epoch,
    decode_state_partitions,
    share_current_record,
    share_group_record,
    share_member_record,
    share_target_epoch_record,
    share_target_record,
    share_tombstone,
    state_partitions_record,
)

T, U = bytes(range(16)), bytes(range(16, 32))
PARTITIONS = {T: frozenset({0, 2})}
PARTITIONS_BYTES = b"\2" + T + b"\3\0\0\0\0\0\0\0\2\0"


def test_a_group() -> None:
    record = share_group_record("g", ShareGroupValue(7, -1))
    assert tuple(record) == (b"\0\x0b\0\1g", b"\0\0\0\0\0\7" + b"\xff" * 8 + b"\0")
    assert decode_share_group(record.value or b"") == ShareGroupValue(7, -1)


def test_a_member() -> None:
    value = ShareMemberMetadata("r", "c", "/h", ("t", "u"))
    record = share_member_record("g", "m", value)
    assert tuple(record) == (b"\0\x0a\0\1g\0\1m", b"\0\0\2r\2c\3/h\3\2t\2u\0")
    assert decode_share_member(record.value or b"") == value


def test_the_epoch_of_the_target() -> None:
    record = share_target_epoch_record("g", ShareTargetEpoch(3))
    assert tuple(record) == (b"\0\x0c\0\1g", b"\0\0\0\0\0\3\0")
    later = share_target_epoch_record("g", ShareTargetEpoch(3, 9))
    assert later.value == b"\0\0\0\0\0\3\1\0\x08" + struct.pack(">q", 9)
    assert decode_share_target_epoch(later.value or b"") == ShareTargetEpoch(3, 9)


def test_the_target_of_a_member() -> None:
    record = share_target_record("g", "m", PARTITIONS)
    assert tuple(record) == (b"\0\x0d\0\1g\0\1m", b"\0\0" + PARTITIONS_BYTES + b"\0")
    assert decode_share_target(record.value or b"") == PARTITIONS


def test_the_assignment_of_a_member() -> None:
    value = ShareAssignment(5, 4, PARTITIONS)
    record = share_current_record("g", "m", value)
    head = b"\0\0\0\0\0\5\0\0\0\4\0"
    assert tuple(record) == (b"\0\x0e\0\1g\0\1m", head + PARTITIONS_BYTES + b"\0")
    assert decode_share_current(record.value or b"") == value


def test_the_partitions_with_a_state() -> None:
    value = StatePartitions(PARTITIONS, {U: frozenset({1})}, frozenset({T}), {T: "t", U: "u"})
    record = state_partitions_record("g", value)
    assert record.key == b"\0\x0f\0\1g"
    assert record.value == b"".join(
        (
            b"\0\0",
            b"\2" + T + b"\2t\3\0\0\0\0\0\0\0\2\0",
            b"\2" + U + b"\2u\2\0\0\0\1\0",
            b"\2" + T + b"\2t\0",
            b"\0",
        )
    )
    assert decode_state_partitions(record.value) == value


@pytest.mark.parametrize("kind", ShareKind)
def test_a_key_names_its_group_and_member(kind: ShareKind) -> None:
    has_member = kind in (ShareKind.MEMBER, ShareKind.TARGET, ShareKind.CURRENT)
    key = share_tombstone(kind, "g", "m" if has_member else None).key
    assert decode_key(key) == ShareKey(kind, "g", "m" if has_member else "")
    for end in range(2, len(key)):
        with pytest.raises(ValueError, match="ends early"):
            decode_share_key(key[:end])
    with pytest.raises(ValueError, match="goes on"):
        decode_share_key(key + b"\0")
