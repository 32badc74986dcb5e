"""Kafka's layouts, against bytes written out by hand from its schemas."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinator.transaction.partitions import NO_PARTITIONS, TransactionPartitions
from broker.coordinator.transaction.records import (
    RecordedTransaction,
    decode_key,
    decode_value,
    transaction_record,
    transaction_tombstone,
)
from broker.coordinator.transaction.types import TransactionState
from stele.ids import TopicPartition

PARTITIONS = TransactionPartitions.of(
    (TopicPartition("bé", 0), TopicPartition("a", 1), TopicPartition("a", 7))
)
ONGOING = RecordedTransaction(
    258, 3, 60_000, TransactionState.ONGOING, PARTITIONS, update_time_ms=1_000, start_time_ms=999
)
EMPTY = RecordedTransaction(1, 0, 5, TransactionState.EMPTY, NO_PARTITIONS, update_time_ms=6)
# The producer id, the epoch, the time-out and the state.
ONGOING_HEAD = b"\0\0\0\0\0\0\1\2" + b"\0\3" + b"\0\0\xea\x60" + b"\1"
EMPTY_HEAD = b"\0\0\0\0\0\0\0\1" + b"\0\0" + b"\0\0\0\5" + b"\0"
# The last update and the start.
ONGOING_TIMES = b"\0\0\0\0\0\0\3\xe8" + b"\0\0\0\0\0\0\3\xe7"
EMPTY_TIMES = b"\0\0\0\0\0\0\0\6" + b"\xff" * 8
PLAIN = b"".join(
    (
        b"\0\0", ONGOING_HEAD, b"\0\0\0\2",
        b"\0\1a", b"\0\0\0\2", b"\0\0\0\1", b"\0\0\0\7",
        b"\0\3b\xc3\xa9", b"\0\0\0\1", b"\0\0\0\0",
        ONGOING_TIMES,
    )
)  # fmt: skip
FLEXIBLE = b"".join(
    (
        b"\0\1", ONGOING_HEAD, b"\3",
        b"\2a", b"\3", b"\0\0\0\1", b"\0\0\0\7", b"\0",
        b"\4b\xc3\xa9", b"\2", b"\0\0\0\0", b"\0",
        ONGOING_TIMES,
    )
)  # fmt: skip
TAGS = b"".join(
    (
        b"\4",
        b"\0\x08\0\0\0\0\0\0\0\x0b",
        b"\1\x08\0\0\0\0\0\0\0\x0c",
        b"\2\x02\0\2",
        b"\3\x02\x7f\xfe",
    )
)
TAGGED = ONGOING._replace(
    previous_producer_id=11, next_producer_id=12, client_version=2, next_producer_epoch=32766
)


def test_a_key() -> None:
    expected = b"\0\0" + b"\0\3t\xc3\xa9"
    assert transaction_tombstone("té") == (expected, None)
    assert transaction_record("té", EMPTY, 0).key == expected
    assert decode_key(expected) == "té"


@pytest.mark.parametrize(
    ("version", "value", "data"),
    [
        (0, ONGOING, PLAIN),
        (1, ONGOING, FLEXIBLE + b"\0"),
        (2, TAGGED, FLEXIBLE + TAGS),
        (0, EMPTY, b"\0\0" + EMPTY_HEAD + b"\xff" * 4 + EMPTY_TIMES),
        (2, EMPTY, b"\0\1" + EMPTY_HEAD + b"\0" + EMPTY_TIMES + b"\0"),
    ],
)
def test_a_value(version: int, value: RecordedTransaction, data: bytes) -> None:
    assert transaction_record("t", value, version).value == data
    assert decode_value(data) == value


@pytest.mark.parametrize(
    ("version", "data"), [(0, b"\0\0\0\0"), (1, b"\1")], ids=["plain", "flexible"]
)
def test_a_finished_transaction_has_an_empty_array(version: int, data: bytes) -> None:
    """Kafka writes null only for an id that has no transaction yet."""
    value = EMPTY._replace(state=TransactionState.COMPLETE_COMMIT)
    written = transaction_record("t", value, version).value
    assert written is not None
    head = 2 + len(EMPTY_HEAD)
    assert written[head : head + len(data)] == data
    assert decode_value(written) == value


def test_the_old_version_keeps_no_tags_but_the_next_producer_id() -> None:
    value = ONGOING._replace(previous_producer_id=11, client_version=2)
    assert transaction_record("t", value, 0).value == PLAIN
    assert transaction_record("t", TAGGED, 0).value == FLEXIBLE + TAGS


def test_a_next_producer_id_of_before_two_phase_commits_is_a_fresh_one() -> None:
    data = FLEXIBLE + b"\1\1\x08\0\0\0\0\0\0\0\x0c"
    assert decode_value(data) == ONGOING._replace(next_producer_id=12, next_producer_epoch=0)


def test_unknown_tags_are_skipped() -> None:
    assert decode_value(FLEXIBLE + b"\1\x09\3abc") == ONGOING


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "a key that ends early"),
        (b"\0", "a key that ends early"),
        (b"\0\0\0\2t", "a key that ends early"),
        (b"\0\0\0\1tt", "a key that goes on after its end"),
        (b"\0\1\0\1t", "a key of version 1"),
        (b"\0\0\0\1\xff", "utf-8"),
    ],
)
def test_damaged_keys(data: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        decode_key(data)


@pytest.mark.parametrize("data", [PLAIN, FLEXIBLE + TAGS], ids=["plain", "flexible"])
def test_values_that_end_early(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(ValueError, match="a transaction"):
            decode_value(data[:length])


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\0\2" + PLAIN[2:], "a transaction of version 2"),
        (PLAIN[:16] + b"\x08" + PLAIN[17:], "8 is not a valid"),
        (PLAIN[:16] + b"\x06" + PLAIN[17:], "Dead, which is never recorded"),
        (PLAIN[:16] + b"\x07" + PLAIN[17:], "PrepareEpochFence, which is never recorded"),
        (FLEXIBLE + b"\1\1\x04\0\0\0\0", "a tagged field 1 of 4 bytes"),
    ],
)
def test_damaged_values(data: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        decode_value(data)


numbers = st.integers(-(2**63), 2**63 - 1)
epochs = st.integers(-(2**15), 2**15 - 1)
values = st.builds(
    RecordedTransaction,
    numbers,
    epochs,
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([each for each in TransactionState if 1 <= each.value <= 5]),
    st.frozensets(
        st.builds(TopicPartition, st.text(max_size=3), st.integers(0, 2**31 - 1)), max_size=5
    ).map(TransactionPartitions.of),
    numbers,
    numbers,
    numbers,
    st.integers(0, 2**63 - 1),
    epochs.filter(lambda each: each != -1),
    epochs,
)


@settings(max_examples=50)
@given(values)
def test_what_is_written_is_read(value: RecordedTransaction) -> None:
    written = transaction_record("t", value, 2).value
    assert written is not None
    assert decode_value(written) == value


@settings(max_examples=50)
@given(st.binary(max_size=40) | st.binary(max_size=30).map(lambda data: FLEXIBLE[:20] + data))
def test_damaged_values_are_reported(data: bytes) -> None:
    try:
        decode_value(data)
    except ValueError:
        return
    except struct.error as error:  # pragma: no cover
        raise AssertionError(data) from error
