"""The partitions of a transaction, compared with a set that is sorted whenever it is asked."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.transaction import records
from broker.coordinator.transaction.partitions import NO_PARTITIONS, TransactionPartitions
from stele.ids import TopicPartition
from tests.support.transactions import TransactionBench

PARTITIONS = st.builds(
    TopicPartition, st.sampled_from(("a", "b", "bé", "c")), st.integers(0, 40) | st.just(2**31 - 1)
)


@given(st.lists(st.sets(PARTITIONS, max_size=30), max_size=6))
def test_they_are_a_sorted_set(added: list[set[TopicPartition]]) -> None:
    twin: set[TopicPartition] = set()
    found = NO_PARTITIONS
    for some in added:
        before, were = found, list(found)
        found = found.with_all([each for each in some if each not in found])
        twin |= some
        assert list(before) == were, "it never changes"
        assert list(found) == sorted(twin)
        assert (len(found), bool(found)) == (len(twin), bool(twin))
        assert found.name_bytes == sum(len(each.topic) for each in twin)
        assert found == TransactionPartitions.of(twin)
        assert hash(found) == hash(TransactionPartitions.of(twin))
        for topic in found.topics:
            numbers = sorted(each.partition for each in twin if each.topic == topic.topic)
            assert topic.packed == struct.pack(f">{len(numbers)}i", *numbers)
    assert {each for each in (TopicPartition("a", 3), TopicPartition("", 0)) if each in found} == {
        each for each in (TopicPartition("a", 3), TopicPartition("", 0)) if each in twin
    }
    assert (found == NO_PARTITIONS) is not bool(twin)
    assert found != list(found)


def test_a_step_need_not_read_its_own_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition that is added has a record with all of them."""
    bench = TransactionBench()
    ref = bench.producer()
    bench.add(ref, *(f"a{number}" for number in range(100)))

    def read(_: bytes) -> None:
        raise AssertionError("it reads what it has just written")

    monkeypatch.setattr(records, "decode_value", read)
    bench.add(ref, "b0")
    value = bench.machine.value_of("t")
    assert value is not None
    assert len(value.partitions) == 101
