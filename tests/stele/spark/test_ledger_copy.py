"""A process's copy of the ledger, beside a reader who reads the whole topic each time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stele.spark.decisions import Decisions, Entry, LedgerError, Prepared
from stele.spark.ledger_copy import DELETE_RETENTION_MS, LONGEST_MS, LedgerCopy
from tests.support.spark_ledger import Record, present, replayed

WRITES = st.sampled_from(["v", "w"])
RUNS = st.sampled_from(["r1", "r2"])
BATCHES = st.integers(0, 1)
WAITS_MS = st.sampled_from([1_000, 200_000, 300_000, 400_000, 700_000])


def value_of(kind: str, write: str = "w", run: str = "r1", batch: int = 0) -> bytes:
    prepared = (Prepared(f"{write}/{run}/{batch}", "7:0"),) if kind == "commit" else ()
    assert kind in ("claim", "commit", "abort")
    return Entry(kind, write, run, batch, prepared).encode()  # type: ignore[arg-type]


class Topic:
    """A compacted partition."""

    def __init__(self, number: int) -> None:
        self.id = b"%d" % number
        self.end = 0
        self.records: dict[int, Record] = {}

    def append(self, key: bytes, value: bytes | None, now_ms: int) -> None:
        self.records[self.end] = Record(key, value, now_ms)
        self.end += 1

    def compact(self, now_ms: int) -> None:
        """Drop what a later record of the key replaces, and old tombstones."""
        last = {record.key: offset for offset, record in self.records.items()}
        self.records = {
            offset: record
            for offset, record in self.records.items()
            if last[record.key] == offset
            and (record.value is not None or now_ms - record.time_ms < DELETE_RETENTION_MS)
        }


def read(copy: LedgerCopy, topic: Topic, now_ms: int, again: int = 0) -> None:
    """Read the tail as a process does; ``again``: and so many offsets before it."""
    is_usable = copy.is_usable(now_ms) and copy.topic_id == topic.id
    if not is_usable or topic.end < copy.next_offset:
        copy.begin(topic.id)
    start = copy.next_offset - again
    for offset, (key, value, time_ms) in topic.records.items():
        if offset >= start:
            copy.take(offset, key, value, time_ms)
    copy.read_up_to(topic.end, now_ms)


class Processes(RuleBasedStateMachine):
    """Two processes write and read now and then, and clean up as drivers do."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.topic = Topic(0)
        self.topics = self.keys = 0
        self.copies = (LedgerCopy(), LedgerCopy())

    @rule(kind=st.sampled_from(["claim", "commit", "abort"]), write=WRITES, run=RUNS, batch=BATCHES)
    def append(self, kind: str, write: str, run: str, batch: int) -> None:
        self.keys += 1
        self.topic.append(b"%d" % self.keys, value_of(kind, write, run, batch), self.now_ms)

    @rule(write=WRITES, count=st.integers(0, 5))
    def remove(self, write: str, count: int) -> None:
        """A driver may die after some of its tombstones."""
        for key in self.whole().needless(write, self.now_ms)[:count]:
            self.topic.append(key, None, self.now_ms)

    @rule()
    def compact(self) -> None:
        self.topic.compact(self.now_ms)

    @rule(write=WRITES, batch=BATCHES)
    def commit_twice(self, write: str, batch: int) -> None:
        """The second commit is void, and removed first."""
        for run in ("r1", "r2"):
            self.append("commit", write, run, batch)

    @rule(ms=WAITS_MS)
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule(write=WRITES, count=st.integers(1, 5), ms=WAITS_MS)
    def remove_and_wait_for_the_cleaner(self, write: str, count: int, ms: int) -> None:
        self.remove(write, count)
        self.now_ms += ms
        self.compact()

    @rule()
    def create_again(self) -> None:
        self.topics += 1
        self.topic = Topic(self.topics)

    @rule(which=st.integers(0, 1), again=st.integers(0, 5))
    def read(self, which: int, again: int) -> None:
        copy = self.copies[which]
        read(copy, self.topic, self.now_ms, again)
        whole, records = self.whole(), list(self.topic.records.values())
        assert copy.size == len(present(records))
        for write in ("v", "w"):
            assert copy.decisions.all_standing(write) == whole.all_standing(write)
            assert copy.decisions.done(write) == whole.done(write)
            assert copy.decisions.latest_run(write) == whole.latest_run(write)
            assert copy.decisions.needless(write) == whole.needless(write)
            assert copy.decisions.needless(write, self.now_ms) == whole.needless(write, self.now_ms)
            for run in ("r1", "r2"):
                assert copy.decisions.has_claimed(write, run) == whole.has_claimed(write, run)
                for batch in range(2):
                    is_aborted = whole.is_aborted(write, run, batch)
                    assert copy.decisions.is_aborted(write, run, batch) == is_aborted
        assert copy.decisions.over(self.now_ms) == whole.over(self.now_ms)

    @invariant()
    def a_copy_is_no_longer_than_what_was_ever_written(self) -> None:
        assert all(copy.size <= self.keys for copy in self.copies)

    def whole(self) -> Decisions:
        return replayed(list(self.topic.records.values()))


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_a_removed_commit_does_not_come_back_when_its_offset_is_read_again() -> None:
    copy, topic = LedgerCopy(), Topic(0)
    topic.append(b"a", value_of("claim"), 0)
    topic.append(b"a", None, 0)
    read(copy, topic, 0)
    copy.take(0, b"a", value_of("claim"), 0)
    assert copy.size == 0
    assert copy.decisions.latest_run("w") is None


def test_a_copy_that_was_not_read_for_long_is_not_used() -> None:
    """Of two tombstones the cleaner has dropped the first. Without it the copy would take the void
    commit of ``r2`` for the one that stands."""
    copy, topic = LedgerCopy(), Topic(0)
    topic.append(b"first", value_of("commit", run="r1"), 0)
    topic.append(b"void", value_of("commit", run="r2"), 0)
    read(copy, topic, 0)
    topic.append(b"void", None, 1)
    topic.append(b"first", None, DELETE_RETENTION_MS)
    now_ms = DELETE_RETENTION_MS + 2
    topic.compact(now_ms)
    assert not copy.is_usable(now_ms)
    read(copy, topic, now_ms)
    assert copy.decisions.all_standing("w") == []


@given(age_ms=st.integers(0, 2 * LONGEST_MS))
def test_the_age_counts_from_the_beginning_of_the_last_read(age_ms: int) -> None:
    copy = LedgerCopy()
    assert not copy.is_usable(5)
    copy.begin(b"id")
    copy.read_up_to(0, began_at_ms=5)
    assert copy.is_usable(5 + age_ms) == (age_ms <= LONGEST_MS)


def test_decisions_that_were_given_out_stay_as_they_were() -> None:
    copy = LedgerCopy()
    copy.begin(b"id")
    before = copy.decisions
    copy.take(0, b"a", value_of("claim"), 0)
    assert before.latest_run("w") is None
    assert copy.decisions.latest_run("w") == "r1"


def test_a_strange_record_is_refused_each_time() -> None:
    copy = LedgerCopy()
    copy.begin(b"id")
    for _ in range(2):
        with pytest.raises(LedgerError):
            copy.take(0, b"a", b"no entry", 0)
    assert copy.next_offset == 0


def test_offsets_without_records_are_passed() -> None:
    copy = LedgerCopy()
    copy.begin(b"id")
    copy.take(7, b"a", replace(Entry("claim", "w", "r1")).encode(), 0)
    copy.read_up_to(12, 0)
    assert copy.next_offset == 12
