"""The store of committed offsets, beside a twin that keeps all of the log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinator.group.offsets import OffsetStore
from broker.coordinator.group.records import CommittedOffset, OffsetKey, offset_record
from stele.ids import TopicPartition

PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0))
Offsets = dict[TopicPartition, int]


def value(offset: int) -> bytes | None:
    key = OffsetKey("g", PARTITIONS[0])
    return offset_record(key, CommittedOffset(offset, -1, "", 0)).value


def test_a_value_that_cannot_be_read_changes_nothing() -> None:
    store = OffsetStore()
    with pytest.raises(ValueError, match="version 5"):
        store.replay(0, OffsetKey("g", PARTITIONS[0]), b"\0\5")
    assert store.group_ids == []
    assert store.count == 0


def test_a_commit_is_answered_when_it_is_certain() -> None:
    store = OffsetStore()
    key = OffsetKey("g", PARTITIONS[0])
    store.replay(0, key, value(5))
    store.committed(1)
    store.replay(1, key, value(6))
    store.replay(2, key, None)
    store.replay(3, key, value(7))
    expected = [(1, 5), (2, 6), (3, None), (4, 7)]
    for high_watermark, offset in expected:
        store.committed(high_watermark)
        told = store.told("g", PARTITIONS[0])
        assert (told and told.offset) == offset
        assert store.newest("g", PARTITIONS[0]) == CommittedOffset(7, -1, "", 0)
    assert store.end("g") == 4


def test_an_answer_about_all_partitions_has_only_certain_offsets() -> None:
    store = OffsetStore()
    store.replay(0, OffsetKey("g", PARTITIONS[0]), value(5))
    store.committed(1)
    store.replay(1, OffsetKey("g", PARTITIONS[0]), value(6))
    store.replay(2, OffsetKey("g", PARTITIONS[1]), value(7))
    told = {partition: each.offset for partition, each in store.all_told("g")}
    assert told == {PARTITIONS[0]: 5}
    store.committed(3)
    told = {partition: each.offset for partition, each in store.all_told("g")}
    assert told == {PARTITIONS[0]: 6, PARTITIONS[1]: 7}
    assert list(store.all_told("nobody")) == []


def test_what_is_gone_is_forgotten() -> None:
    store = OffsetStore()
    store.replay(0, OffsetKey("g", PARTITIONS[0]), value(5))
    store.replay(1, OffsetKey("g", PARTITIONS[0]), None)
    assert store.group_ids == ["g"]
    store.committed(2)
    assert store.group_ids == []
    store.replay(2, OffsetKey("g", PARTITIONS[0]), None)
    store.committed(3)
    assert store.group_ids == []
    assert store.end("g") == -1
    assert store.count == 0


def test_what_is_gone_in_a_log_that_is_committed_is_forgotten_at_once() -> None:
    store = OffsetStore()
    store.committed(2)
    store.replay(0, OffsetKey("g", PARTITIONS[0]), value(5))
    store.replay(1, OffsetKey("g", PARTITIONS[0]), None)
    assert store.group_ids == []
    assert store.end("g") == -1


steps = st.lists(
    st.tuples(
        st.sampled_from("gh"),
        st.sampled_from(PARTITIONS),
        st.none() | st.integers(0, 9),
        st.integers(0, 3),
    ),
    max_size=30,
)


@settings(max_examples=100)
@given(steps)
def test_any_log(steps: list[tuple[str, TopicPartition, int | None, int]]) -> None:
    store = OffsetStore()
    log: list[tuple[str, TopicPartition, int | None]] = []
    high_watermark = 0

    def twin(group_id: str, end: int) -> Offsets:
        found: Offsets = {}
        for group, partition, offset in log[:end]:
            if group == group_id and offset is None:
                found.pop(partition, None)
            elif group == group_id and offset is not None:
                found[partition] = offset
        return found

    for group_id, partition, offset, committed in steps:
        committed_value = None if offset is None else value(offset)
        store.replay(len(log), OffsetKey(group_id, partition), committed_value)
        log.append((group_id, partition, offset))
        if committed:
            high_watermark = min(high_watermark + committed, len(log))
            store.committed(high_watermark)
        for each in "gh":
            told, newest = store.all_told(each), store.all_newest(each)
            assert {at: found.offset for at, found in told} == twin(each, high_watermark)
            assert {at: found.offset for at, found in newest} == twin(each, len(log))
            for at in PARTITIONS:
                found = store.told(each, at)
                assert (found and found.offset) == twin(each, high_watermark).get(at)
        assert store.count == sum(len(twin(each, len(log))) for each in "gh")
