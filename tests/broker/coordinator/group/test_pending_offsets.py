"""The offsets of transactions in the store, beside a twin that keeps all of the log."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinator.group.offsets import OffsetStore
from broker.coordinator.group.records import CommittedOffset, OffsetKey, offset_record
from stele.ids import TopicPartition

PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0))
PRODUCERS = (1, 2, 3)
KEY = OffsetKey("g", PARTITIONS[0])


def value(offset: int) -> bytes:
    value = offset_record(KEY, CommittedOffset(offset, -1, "", 0)).value
    assert value is not None
    return value


def offset_of(store: OffsetStore, key: OffsetKey = KEY) -> int | None:
    newest = store.newest(*key)
    return None if newest is None else newest.offset


def test_an_offset_of_a_transaction_counts_when_it_is_committed() -> None:
    store = OffsetStore()
    store.replay_pending(0, 1, KEY, value(5))
    assert store.is_pending(*KEY)
    assert offset_of(store) is None
    assert store.has_any("g")
    assert store.group_ids == ["g"]
    assert store.end_transaction(1, 1, commits=True) == [KEY]
    assert offset_of(store) == 5
    assert store.told(*KEY) is None  # the marker may be lost
    assert store.end("g") == 2
    store.committed(2)
    assert store.told(*KEY) == CommittedOffset(5, -1, "", 0)
    assert not store.is_pending(*KEY)
    assert store.end_transaction(2, 1, commits=True) == []


def test_an_aborted_one_never_counts() -> None:
    store = OffsetStore()
    store.replay_pending(0, 1, KEY, value(5))
    assert store.end_transaction(1, 1, commits=False) == []
    assert (offset_of(store), store.group_ids, store.count) == (None, [], 0)


@pytest.mark.parametrize("first", PRODUCERS[:2])
def test_the_last_record_decides_in_any_order_of_commits(first: int) -> None:
    store = OffsetStore()
    store.replay_pending(0, 1, KEY, value(5))
    store.replay_pending(1, 2, KEY, value(6))
    for offset, producer_id in enumerate((first, 3 - first), 2):
        store.end_transaction(offset, producer_id, commits=True)
    assert offset_of(store) == 6


def test_a_later_plain_commit_stays() -> None:
    store = OffsetStore()
    store.replay_pending(0, 1, KEY, value(5))
    store.replay(1, KEY, value(4))
    assert store.is_pending(*KEY)  # nobody knows yet
    store.end_transaction(2, 1, commits=True)
    assert offset_of(store) == 4
    assert not store.is_pending(*KEY)


def test_a_deletion_takes_what_is_pending_too() -> None:
    store = OffsetStore()
    other = OffsetKey("g", PARTITIONS[1])
    store.replay(0, KEY, value(4))
    store.replay_pending(1, 1, KEY, value(5))
    store.replay_pending(2, 1, other, value(6))
    assert list(store.partitions("g")) == list(PARTITIONS[:2])
    store.replay(3, KEY, None)
    assert not store.is_pending(*KEY)
    assert store.end_transaction(4, 1, commits=True) == [other]
    assert (offset_of(store), offset_of(store, other)) == (None, 6)


@pytest.mark.parametrize("data", [None, b"\0\5"])
def test_records_that_mean_nothing_change_nothing(data: bytes | None) -> None:
    store = OffsetStore()
    with pytest.raises(ValueError, match=r"deletes|version 5"):
        store.replay_pending(0, 1, KEY, data)
    assert store.group_ids == []


class Write(NamedTuple):
    producer_id: int  # 0: of no transaction
    key: OffsetKey
    offset: int | None  # None: a tombstone


class End(NamedTuple):
    producer_id: int
    commits: bool


Life = list[Write | End]


class Twin:
    """What a log comes to, with the offset of the record behind everything, as Kafka has it."""

    def __init__(self, log: Life) -> None:
        self.offsets: dict[OffsetKey, tuple[int, int]] = {}
        self.pending: dict[int, dict[OffsetKey, tuple[int, int]]] = {}
        for at, entry in enumerate(log):
            if isinstance(entry, End):
                self.end(entry)
            elif entry.offset is None:
                self.offsets.pop(entry.key, None)
                for each in self.pending.values():
                    each.pop(entry.key, None)
            elif entry.producer_id:
                of_producer = self.pending.setdefault(entry.producer_id, {})
                of_producer[entry.key] = at, entry.offset
            else:
                self.offsets[entry.key] = at, entry.offset

    def end(self, entry: End) -> None:
        ended = self.pending.pop(entry.producer_id, {})
        for key, (at, offset) in ended.items() if entry.commits else ():
            if key not in self.offsets or self.offsets[key][0] < at:
                self.offsets[key] = at, offset

    def of(self, group_id: str) -> dict[TopicPartition, int]:
        return {
            key.partition: offset
            for key, (_, offset) in self.offsets.items()
            if key.group_id == group_id
        }

    def pending_of(self, group_id: str) -> set[TopicPartition]:
        keys = {key for each in self.pending.values() for key in each}
        return {each.partition for each in keys if each.group_id == group_id}


keys = st.builds(OffsetKey, st.sampled_from("gh"), st.sampled_from(PARTITIONS))
entries = st.one_of(
    st.builds(Write, st.sampled_from(PRODUCERS), keys, st.integers(0, 9)),
    st.builds(Write, st.just(0), keys, st.none() | st.integers(0, 9)),
    st.builds(End, st.sampled_from(PRODUCERS), st.booleans()),
)


@settings(max_examples=150)
@given(st.lists(st.tuples(entries, st.integers(0, 3)), max_size=30))
def test_any_log(steps: list[tuple[Write | End, int]]) -> None:
    store = OffsetStore()
    log: Life = []
    high_watermark = 0
    for entry, committed in steps:
        replay(store, len(log), entry)
        log.append(entry)
        if committed:
            high_watermark = min(high_watermark + committed, len(log))
            store.committed(high_watermark)
        now, told = Twin(log), Twin(log[:high_watermark])
        for group_id in "gh":
            newest = {at: each.offset for at, each in store.all_newest(group_id)}
            assert newest == now.of(group_id)
            assert {at: each.offset for at, each in store.all_told(group_id)} == told.of(group_id)
            pending = {at for at in PARTITIONS if store.is_pending(group_id, at)}
            assert pending == now.pending_of(group_id)
            partitions = list(store.partitions(group_id))
            assert len(set(partitions)) == len(partitions)
            assert set(partitions) == pending | newest.keys()
            assert set(store.topics(group_id)) == {each.topic for each in partitions}
            assert store.has_any(group_id) == bool(partitions)
            may_count = [at for t in "tu" for at, _ in store.pending_of_topic(group_id, t)]
            assert set(may_count) <= pending
        assert store.count == len(now.offsets)


def replay(store: OffsetStore, offset: int, entry: Write | End) -> None:
    if isinstance(entry, End):
        store.end_transaction(offset, entry.producer_id, commits=entry.commits)
        return
    data = None if entry.offset is None else value(entry.offset)
    if entry.producer_id:
        store.replay_pending(offset, entry.producer_id, entry.key, data)
    else:
        store.replay(offset, entry.key, data)
