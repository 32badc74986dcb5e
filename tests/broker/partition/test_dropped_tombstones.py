"""Followers of a compacted log, some away for longer than tombstones are kept.

The twin is a leader's log of single records, and followers that hold copies of them. A follower
that the machine lets go on must end up with the leader's keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.partition.machine import PartitionMachine
from tests.support.broker import MachineBench, state

RETENTION_MS = 1000
FOLLOWERS = (2, 3)
KEYS = "ab"


@dataclass
class Stored:
    """A record of one key; no value: a tombstone."""

    key: str
    value: int | None
    horizon_ms: int | None = None  # when the tombstone may go


@dataclass
class Log:
    """What a replica holds, by offset."""

    end: int = 0
    records: dict[int, Stored] = field(default_factory=dict)

    def view(self) -> dict[str, int]:
        """The keys and values that a reader finds."""
        values: dict[str, int] = {}
        for _, record in sorted(self.records.items()):
            if record.value is None:
                values.pop(record.key, None)
            else:
                values[record.key] = record.value
        return values


class Compacted(RuleBasedStateMachine):
    """One leader, which compacts, and two followers outside of the ISR."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = MachineBench()
        self.bench.update(state(isr=(1,), epoch=5))
        self.leader = Log()
        self.followers = {broker_id: Log() for broker_id in FOLLOWERS}
        self.time_ms = 1_000_000
        self.dropped_end = 0
        self.begun_anew = 0

    @property
    def machine(self) -> PartitionMachine:
        return self.bench.machine

    @rule(key=st.sampled_from(KEYS), has_value=st.booleans())
    def write(self, key: str, has_value: bool) -> None:
        value = self.leader.end if has_value else None
        self.leader.records[self.leader.end] = Stored(key, value)
        self.leader.end += 1
        self.bench.append(1, durable=True)

    @rule(elapsed_ms=st.sampled_from([1, RETENTION_MS // 2, RETENTION_MS, RETENTION_MS]))
    def later(self, elapsed_ms: int) -> None:
        self.time_ms += elapsed_ms

    @precondition(lambda self: self.leader.end)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """Compact a prefix of the log."""
        end = data.draw(st.integers(1, self.leader.end))
        records = self.leader.records
        latest = {record.key: at for at, record in sorted(records.items()) if at < end}
        dropped = [
            at
            for at in latest.values()
            if (horizon_ms := records[at].horizon_ms) is not None and self.time_ms >= horizon_ms
        ]
        if dropped:
            self.dropped_end = max(self.dropped_end, max(dropped) + 1)
            self.machine.tombstones_dropped(max(dropped) + 1, self.time_ms, RETENTION_MS)
        for at in [at for at in records if at < end]:
            record = records[at]
            if latest[record.key] != at or at in dropped:
                del records[at]
            elif record.value is None and record.horizon_ms is None:
                record.horizon_ms = self.time_ms + RETENTION_MS

    @rule(broker_id=st.sampled_from(FOLLOWERS), count=st.integers(1, 4))
    def fetch(self, broker_id: int, count: int) -> None:
        follower, epoch = self.followers[broker_id], self.bench.epochs[broker_id]
        if self.machine.must_begin_anew(broker_id, epoch, follower.end, 0, self.dropped_end):
            follower = self.followers[broker_id] = Log()
            self.begun_anew += 1
        status = self.bench.status(broker_id)
        self.machine.fetched(broker_id, follower.end, status, 0, time_ms=self.time_ms)
        end = min(follower.end + count, self.leader.end)
        for at in range(follower.end, end):
            if at in self.leader.records:
                record = self.leader.records[at]
                follower.records[at] = Stored(record.key, record.value)
        follower.end = end

    @rule(broker_id=st.sampled_from(FOLLOWERS))
    def restart(self, broker_id: int) -> None:
        """A new incarnation, with the same log."""
        self.bench.epochs[broker_id] += 10

    @invariant()
    def a_follower_that_may_go_on_will_agree(self) -> None:
        for broker_id, follower in self.followers.items():
            epoch = self.bench.epochs[broker_id]
            if not self.machine.must_begin_anew(
                broker_id, epoch, follower.end, 0, self.dropped_end
            ):
                rest = {at: each for at, each in self.leader.records.items() if at >= follower.end}
                whole = Log(self.leader.end, follower.records | rest)
                assert whole.view() == self.leader.view(), broker_id


TestCompacted = Compacted.TestCase
TestCompacted.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


def away(*, isr: tuple[int, ...] = (1,), elr: tuple[int, ...] = ()) -> MachineBench:
    """A leader with ten records. Broker 2 was last seen at offset 5."""
    bench = MachineBench(end=10)
    bench.update(state(isr=isr, elr=elr))
    bench.machine.fetched(2, 5, bench.status(2), 0, time_ms=0)
    return bench


def must_begin_anew(bench: MachineBench, offset: int, *, start: int = 0, dropped: int = 8) -> bool:
    return bench.machine.must_begin_anew(2, bench.epochs[2], offset, start, dropped)


def test_a_follower_below_a_dropped_tombstone_begins_anew() -> None:
    bench = away()
    assert must_begin_anew(bench, 5)
    assert must_begin_anew(bench, 7)
    assert not must_begin_anew(bench, 8)


def test_a_log_without_records_may_go_on() -> None:
    bench = away()
    assert not must_begin_anew(bench, 5, start=5)
    bench.begin_at(6)
    assert not must_begin_anew(bench, 6), "the leader has deleted all that it holds"


@pytest.mark.parametrize("role", ["isr", "elr"])
def test_a_replica_that_may_lead_never_begins_anew(role: str) -> None:
    bench = away(isr=(1, 2)) if role == "isr" else away(elr=(2,))
    assert not must_begin_anew(bench, 5)


@pytest.mark.parametrize(
    ("elapsed_ms", "anew"), [(999, False), (1000, True), (5000, True), (-1, True)]
)
def test_a_refilled_follower_goes_on_for_as_long_as_tombstones_are_kept(
    elapsed_ms: int, anew: bool
) -> None:
    bench = away()
    bench.machine.fetched(2, 0, bench.status(2), 0, time_ms=10_000)
    bench.machine.fetched(2, 3, bench.status(2), 0, time_ms=10_001)
    assert not must_begin_anew(bench, 3)
    bench.machine.tombstones_dropped(8, 10_000 + elapsed_ms, 1000)
    assert must_begin_anew(bench, 3) is anew


def test_a_refilled_follower_that_has_read_the_tombstone_is_not_concerned() -> None:
    bench = away()
    bench.machine.fetched(2, 0, bench.status(2), 0, time_ms=10_000)
    bench.machine.fetched(2, 4, bench.status(2), 0, time_ms=10_001)
    bench.machine.tombstones_dropped(4, 20_000, 1000)
    assert not must_begin_anew(bench, 4)


def test_another_incarnation_proves_again_that_it_is_complete() -> None:
    bench = away()
    bench.machine.fetched(2, 0, bench.status(2), 0, time_ms=10_000)
    assert not must_begin_anew(bench, 3)
    bench.epochs[2] += 1
    assert must_begin_anew(bench, 3)
