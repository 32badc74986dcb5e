"""The records of ``__share_group_state`` in Kafka's layouts."""

from __future__ import annotations

import struct

import pytest

from broker.coordinator.share.letter_plans import decode_letters, encode_letters
from broker.coordinator.share.records import (
    StateKind,
    StateUpdate,
    decode_snapshot,
    decode_state_key,
    decode_update,
    snapshot_record,
    state_tombstone,
    update_record,
)
from broker.coordinator.share.types import ShareState, StateKey
from broker.share.values import LetterPlan, RecordState, StateBatch

KEY = StateKey("g", bytes(range(16)), 5)
BATCHES = (
    StateBatch(3, 7, RecordState.ACKNOWLEDGED, 2),
    StateBatch(9, 9, RecordState.AVAILABLE, 1),
)
BATCHES_BYTES = b"\3" + struct.pack(">qqbhb", 3, 7, 2, 2, 0) + struct.pack(">qqbhb", 9, 9, 0, 1, 0)


def test_a_snapshot() -> None:
    state = ShareState(4, 1, 2, 3, 5, 100, 200, BATCHES)
    key, value = snapshot_record(KEY, state)
    assert key == b"\0\0\0\1g" + KEY.topic_id + b"\0\0\0\5"
    head = struct.pack(">hiiiqqq", 0, 4, 1, 2, 3, 100, 200)
    assert value == head + BATCHES_BYTES + b"\1\0\4\0\0\0\5"
    assert decode_snapshot(value) == state


def test_an_update_of_little() -> None:
    key, value = update_record(KEY, StateUpdate(4, 2))
    assert key == b"\0\1\0\1g" + KEY.topic_id + b"\0\0\0\5"
    assert value == struct.pack(">hiiq", 0, 4, 2, -1) + b"\1\0"
    assert decode_update(value) == StateUpdate(4, 2)


def test_an_update() -> None:
    update = StateUpdate(4, 2, 3, 7, BATCHES)
    _, value = update_record(KEY, update)
    assert value == struct.pack(">hiiq", 0, 4, 2, 3) + BATCHES_BYTES + b"\1\0\4\0\0\0\7"
    assert decode_update(value) == update


LETTERS = LetterPlan(bytes(range(16, 32)), 2, 1 << 40, 7, 11, ((3, 5), (9, 9)))
ARCHIVING = (
    StateBatch(3, 5, RecordState.ARCHIVING, 5),
    StateBatch(9, 9, RecordState.ARCHIVING_REJECTED, 1),
)


def test_dead_letters_are_in_tagged_fields_that_kafka_skips() -> None:
    _, value = update_record(KEY, StateUpdate(4, 2, 3, 7, ARCHIVING, LETTERS))
    assert value is not None
    assert decode_update(value) == StateUpdate(4, 2, 3, 7, ARCHIVING, LETTERS)
    # Both batches are Kafka's state 3. The second one has a tagged field without content.
    rejected = struct.pack(">qqbh", 9, 9, 3, 1) + b"\1\x90\x4e\0"
    batches = b"\3" + struct.pack(">qqbhb", 3, 5, 3, 5, 0) + rejected
    head = struct.pack(">hiiq", 0, 4, 2, 3) + batches
    assert value.startswith(head + b"\2\0\4\0\0\0\7\x90\x4e")
    state = ShareState(4, 1, 2, 3, 5, 100, 200, ARCHIVING, LETTERS)
    snapshot = snapshot_record(KEY, state).value
    assert snapshot is not None
    assert decode_snapshot(snapshot) == state


def test_a_damaged_plan_of_dead_letters() -> None:
    data = encode_letters(LETTERS)
    assert decode_letters(data) == LETTERS
    for length in range(len(data)):
        with pytest.raises(ValueError, match="a plan of dead letters"):
            decode_letters(data[:length])


def test_a_tombstone_is_that_of_a_snapshot() -> None:
    key, value = state_tombstone(KEY)
    assert decode_state_key(key) == (StateKind.SNAPSHOT, KEY)
    assert value is None


@pytest.mark.parametrize(
    "damaged", [b"", b"\0", b"\0\2\0\1g", b"\0\0\0\1g", b"\0\0\0\1g" + b"x" * 21]
)
def test_a_damaged_key(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"key|StateKind"):
        decode_state_key(damaged)


def test_a_damaged_count() -> None:
    _, value = update_record(KEY, StateUpdate(4, 2, 3, 7, BATCHES))
    assert value is not None
    with pytest.raises(ValueError, match="damaged"):
        decode_update(value[:-7] + b"\1\0\3\0\0\7")


def test_a_coordinator_is_found_by_group_topic_and_partition() -> None:
    assert KEY.coordinator_key == "g:AAECAwQFBgcICQoLDA0ODw:5"
