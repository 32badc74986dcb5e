"""The last records of partitions against a dumb twin, and filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.output import CommandError, UsageError
from cli.records.filters import record_filter
from cli.records.reading import last_records, records_until
from stele.ids import TopicPartition
from stele.records import ConsumerRecord, Headers, TimestampType

Logs = Mapping[TopicPartition, Sequence[ConsumerRecord]]


def record(
    partition: int,
    offset: int,
    time_ms: int = 0,
    key: bytes | None = None,
    headers: Headers = (),
) -> ConsumerRecord:
    kind = TimestampType.CREATE_TIME
    return ConsumerRecord("t", partition, offset, time_ms, kind, key, b"", headers, 0)


class Reader:
    """A consumer of logs that are there as a whole; it returns three records a poll."""

    def __init__(self, logs: Logs, ends: Mapping[TopicPartition, int]) -> None:
        self.logs, self.ends = logs, ends
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.positions = {name: self.positions.get(name, 0) for name in partitions}

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self.positions[TopicPartition(topic, partition)] = offset

    def position(self, topic: str, partition: int) -> int:
        return self.positions[TopicPartition(topic, partition)]

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused |= set(partitions or self.positions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused -= set(partitions or self.positions)

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def poll(
        self, max_records: int | None = None, timeout_ms: float = 1000
    ) -> Sequence[ConsumerRecord]:
        for name, position in self.positions.items():
            if name in self.paused or position >= self.ends[name]:
                continue
            found = [each for each in self.logs[name] if each.offset >= position][:3]
            is_last = len(found) < 3
            self.positions[name] = self.ends[name] if is_last else found[-1].offset + 1
            return found
        return []


@st.composite
def logs(draw: st.DrawFn) -> tuple[Logs, dict[TopicPartition, int]]:
    """Logs with gaps, also at their ends."""
    made: dict[TopicPartition, Sequence[ConsumerRecord]] = {}
    ends = {}
    for number in range(draw(st.integers(1, 3))):
        name = TopicPartition("t", number)
        offsets = sorted(draw(st.sets(st.integers(0, 40), max_size=20)))
        made[name] = [
            record(number, each, draw(st.integers(0, 9)), draw(st.sampled_from([b"a", b"b"])))
            for each in offsets
        ]
        ends[name] = draw(st.integers(offsets[-1] + 1 if offsets else 0, 45))
    return made, ends


@given(logs(), st.integers(1, 8), st.sampled_from([None, b"a"]))
def test_the_last_records_are_those_that_a_whole_read_finds(
    made: tuple[Logs, dict[TopicPartition, int]], count: int, key: bytes | None
) -> None:
    kept, ends = made
    accepts = record_filter(None if key is None else key.decode(), [])
    found = last_records(Reader(kept, ends), ends, count, accepts, timeout_s=5)
    # The twin takes the newest of the partitions' last records, one by one.
    left = [[each for each in log if key in (None, each.key)] for log in kept.values()]
    expected: list[ConsumerRecord] = []
    while len(expected) < count and any(left):
        newest = max((log for log in left if log), key=lambda log: log[-1].timestamp_ms)
        expected.insert(0, newest.pop())
    assert [each.timestamp_ms for each in found] == [each.timestamp_ms for each in expected]
    assert set(found) <= {each for log in kept.values() for each in log if key in (None, each.key)}
    for name in kept:
        own = [each.offset for each in found if each.partition == name.partition]
        assert own == sorted(set(own))


def test_nothing_is_returned_beyond_the_end() -> None:
    name = TopicPartition("t", 0)
    reader = Reader({name: [record(0, each) for each in range(10)]}, {name: 10})
    reader.assign([name])
    read = [each.offset for some in records_until(reader, {name: 4}, 5) for each in some]
    assert read == [0, 1, 2, 3]
    assert reader.paused == {name}


def test_a_record_that_does_not_come_is_named() -> None:
    name = TopicPartition("t", 0)
    reader = Reader({name: []}, {name: 0})
    reader.assign([name])
    with pytest.raises(CommandError, match=r"t-0: no record came for 0 s at offset 0, 4 not"):
        list(records_until(reader, {name: 4}, 0))


@pytest.mark.parametrize(
    ("key", "headers", "accepted"),
    [
        ("k", [], True),
        ("K", [], False),
        (None, ["a"], True),
        (None, ["c"], False),
        (None, ["a=1"], True),
        (None, ["a=2"], True),
        (None, ["a=3"], False),
        (None, ["a=1", "b"], True),
        ("k", ["b="], False),
    ],
)
def test_a_filter_needs_the_key_and_every_header(
    key: str | None, headers: list[str], accepted: bool
) -> None:
    accepts = record_filter(key, headers)
    assert accepts is not None
    shown = record(0, 0, key=b"k", headers=(("a", b"1"), ("a", b"2"), ("b", None)))
    assert accepts(shown) == accepted


def test_without_a_filter_nothing_is_asked() -> None:
    assert record_filter(None, []) is None
    with pytest.raises(UsageError, match="has no name"):
        record_filter(None, ["=x"])
