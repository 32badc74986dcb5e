"""A lane that numbers its records itself, against leaders that fail, lose and answer late."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.gateway.lanes import Part, Prepare, Refused, Resolved, Send, Stored
from broker.gateway.shared_lane import SharedLane
from stele.errors import ErrorCode

BATCH_BYTES = 40
RECORD_BYTES = 10
PATIENCE_S = 30.0
FOREVER_S = 1e9


class Batch(NamedTuple):
    producer_id: int
    base_sequence: int
    records: tuple[int, ...]
    base_offset: int


@dataclass
class Leader:
    """The log of a partition, as KIP-98 has its leaders accept batches."""

    batches: list[Batch] = field(default_factory=list)
    high_watermark: int = 0
    epoch: int = 0

    @property
    def records(self) -> list[int]:
        return [record for batch in self.batches for record in batch.records]

    def append(self, producer_id: int, base_sequence: int, records: tuple[int, ...]) -> int | None:
        """The base offset; None: the batch is out of order."""
        known = [batch for batch in self.batches if batch.producer_id == producer_id]
        for batch in known[-5:]:
            if (batch.base_sequence, len(batch.records)) == (base_sequence, len(records)):
                return batch.base_offset  # it looks at nothing else
        if known and base_sequence != known[-1].base_sequence + len(known[-1].records):
            return None
        end = len(self.records)
        self.batches.append(Batch(producer_id, base_sequence, records, end))
        return end

    def commit(self, rng: random.Random) -> None:
        self.high_watermark = rng.randint(self.high_watermark, len(self.records))

    def fail_over(self, rng: random.Random) -> None:
        """The next leader has all that is committed, and perhaps some of the rest."""
        self.epoch += 1
        while self.batches and self.batches[-1].base_offset >= self.high_watermark:
            if rng.random() < 0.5:
                break
            self.batches.pop()


def values_of(part: Part[Sequence[int]]) -> list[int]:
    return list(part.run[part.first : part.first + part.record_count])


class World:
    """One lane. Some records are bad: a leader refuses a batch that has one."""

    def __init__(self, seed: int, count: int) -> None:
        self.rng = random.Random(seed)
        self.leader = Leader()
        self.lane: SharedLane[Sequence[int]] = SharedLane(BATCH_BYTES, is_numbered=True)
        self.count = count
        self.bad = {number for number in range(count) if self.rng.random() < 0.05}
        self.next = 0
        self.now_s = 0.0
        self.last_id = 0
        self.late: list[tuple[int, int, tuple[int, ...]]] = []
        self.sent: tuple[int, int, tuple[int, ...]] | None = None
        self.appended_at: int | None = None  # by the leader of this epoch
        self.appended_in = 0
        self.stored: dict[int, int] = {}
        self.refused: dict[int, Refused] = {}

    def resolved(self, resolved: list[Resolved[Sequence[int]]]) -> None:
        for part, outcome in resolved:
            for number, record in enumerate(values_of(part)):
                assert record not in self.stored
                assert record not in self.refused
                if isinstance(outcome, Refused):
                    self.refused[record] = outcome
                    continue
                assert outcome.base_offset is not None
                self.stored[record] = outcome.base_offset + number
                committed = self.leader.records[: self.leader.high_watermark]
                assert committed[self.stored[record]] == record

    def step(self, *, calm: bool) -> None:
        rng = self.rng
        event = rng.random() * (0.7 if calm else 1.0)
        self.now_s += 0.0 if calm else rng.choice([0.0, 0.0, 0.1, 0.5])
        if event < 0.2 and self.next < self.count:
            count = rng.randint(1, min(6, self.count - self.next))
            run = range(self.next, self.next + count)
            self.lane.add(run, count, count * RECORD_BYTES, self.now_s + PATIENCE_S)
            self.next += count
        elif event < 0.5:
            self.act()
        elif event < 0.7:
            self.leader.commit(rng)
        elif event < 0.8:
            self.leader.fail_over(rng)
        elif event < 0.9 and self.late:
            self.leader.append(*self.late.pop(rng.randrange(len(self.late))))
        elif event < 0.95:
            self.expire()
        self.check()

    def expire(self) -> None:
        """Look for records whose time is over, perhaps while a batch is under way."""
        self.resolved(self.lane.expire(self.now_s))
        deadline_s = self.lane.next_deadline_s
        assert deadline_s is None or deadline_s > self.now_s

    def act(self) -> None:
        if self.sent is not None:
            self.finish(self.sent)
            return
        resolved, action = self.lane.decide(self.now_s)
        self.resolved(resolved)
        if isinstance(action, Prepare):
            if self.rng.random() < 0.7:
                self.last_id += 1
                self.lane.renewed(self.last_id)
        elif action is not None:
            records = tuple(value for part in action.parts for value in values_of(part))
            self.sent = (self.lane.producer_id, action.base_sequence, records)
            self.appended_at = None

    def finish(self, sent: tuple[int, int, tuple[int, ...]]) -> None:
        fate = self.rng.random()
        if self.appended_at is None and fate < 0.1:
            self.sent = None  # it was not sent, or refused for now
            self.lane.not_acknowledged(maybe_written=False)
        elif self.appended_at is None and fate < 0.6:
            if self.bad & {*sent[2]}:
                self.sent = None
                self.resolved(self.lane.rejected(ErrorCode.INVALID_RECORD, "bad"))
                return
            self.appended_at = self.leader.append(*sent)
            self.appended_in = self.leader.epoch
            if self.appended_at is None:
                self.sent = None
                self.resolved(self.lane.out_of_step(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
        elif fate < 0.75 or self.appended_at is None or self.appended_in != self.leader.epoch:
            if self.rng.random() < 0.5 and not self.bad & {*sent[2]}:
                self.late.append(sent)  # it may arrive after the lane has given up
            self.sent = None
            self.lane.not_acknowledged(maybe_written=True)
        elif self.leader.high_watermark >= self.appended_at + len(sent[2]):
            self.sent = None
            self.resolved(self.lane.acknowledged(self.appended_at))

    def check(self) -> None:
        """No record is there twice, and none is there that surely is not. They keep their order,
        unless a late request has written one that was given up."""
        records = self.leader.records
        assert len(records) == len({*records})
        in_time = [record for record in records if record not in self.refused]
        assert in_time == sorted(in_time)
        for record in records:
            refused = self.refused.get(record)
            assert refused is None or refused.maybe_written


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_every_record_is_written_once_at_most_and_in_order(seed: int, count: int) -> None:
    world = World(seed, count)
    for _ in range(400):
        world.step(calm=False)
    world.late.clear()
    for _ in range(20_000):
        if len(world.stored) + len(world.refused) == count and world.lane.is_empty:
            break
        world.step(calm=True)
    assert {*world.stored, *world.refused} == {*range(count)}
    assert not world.bad & world.stored.keys()
    for record, refused in world.refused.items():
        assert record in world.bad or refused.code in (
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            ErrorCode.INVALID_RECORD,
        )
    assert world.lane.is_empty


# ------------------------------------------------------------------------------ one lane


def lane_with(*counts: int, is_numbered: bool = True) -> SharedLane[str]:
    lane: SharedLane[str] = SharedLane(BATCH_BYTES, is_numbered=is_numbered)
    for number, count in enumerate(counts):
        lane.add(f"run{number}", count, count * RECORD_BYTES, PATIENCE_S)
    return lane


def sent(lane: SharedLane[str]) -> Send[str]:
    resolved, action = lane.decide(0.0)
    assert resolved == []
    assert isinstance(action, Send)
    return action


def test_a_batch_has_the_runs_that_fit_and_the_next_sequences() -> None:
    lane = lane_with(2, 2, 1, 9)
    assert isinstance(lane.decide(0.0)[1], Prepare)
    lane.renewed(7)
    assert sent(lane) == Send(0, [Part("run0", 0, 2), Part("run1", 0, 2)])
    assert lane.acknowledged(100) == [
        Resolved(Part("run0", 0, 2), Stored(100, False)),
        Resolved(Part("run1", 0, 2), Stored(102, False)),
    ]
    assert sent(lane) == Send(4, [Part("run2", 0, 1)])
    lane.acknowledged(200)
    assert sent(lane) == Send(5, [Part("run3", 0, 9)])  # larger than a batch: alone
    lane.acknowledged(-1)
    assert lane.decide(0.0) == ([], None)


def test_what_may_be_written_is_sent_again_as_it_was() -> None:
    lane = lane_with(1)
    lane.renewed(7)
    first = sent(lane)
    lane.not_acknowledged(maybe_written=True)
    lane.add("more", 1, RECORD_BYTES, PATIENCE_S)
    assert sent(lane) == first
    lane.not_acknowledged(maybe_written=False)
    assert sent(lane) == first


def test_what_was_not_sent_may_be_cut_in_another_way() -> None:
    lane = lane_with(1)
    lane.renewed(7)
    sent(lane)
    lane.not_acknowledged(maybe_written=False)
    lane.add("more", 1, RECORD_BYTES, PATIENCE_S)
    assert sent(lane) == Send(0, [Part("run0", 0, 1), Part("more", 0, 1)])


def test_the_sequences_of_an_expired_batch_are_never_used_again() -> None:
    lane = lane_with(1)
    lane.renewed(7)
    sent(lane)
    lane.not_acknowledged(maybe_written=True)
    lane.add("later", 1, RECORD_BYTES, FOREVER_S)
    ((part, outcome),), action = lane.decide(PATIENCE_S)
    assert part.run == "run0"
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.maybe_written) == (ErrorCode.REQUEST_TIMED_OUT, True)
    assert isinstance(action, Prepare)
    lane.renewed(8)
    assert sent(lane) == Send(0, [Part("later", 0, 1)])
    assert lane.producer_id == 8


def test_a_record_expires_while_it_is_under_way() -> None:
    lane = lane_with(2)
    lane.add("later", 2, 2 * RECORD_BYTES, PATIENCE_S + 5)
    lane.renewed(7)
    sent(lane)
    lane.add("waiting", 1, RECORD_BYTES, PATIENCE_S + 9)
    assert lane.expire(PATIENCE_S - 1) == []
    message = "the leader did not answer in time, or there was none"
    unknown = Refused(ErrorCode.REQUEST_TIMED_OUT, message, maybe_written=True)
    assert lane.expire(PATIENCE_S) == [Resolved(Part("run0", 0, 2), unknown)]
    assert lane.expire(PATIENCE_S) == []
    assert lane.next_deadline_s == PATIENCE_S + 5
    assert lane.acknowledged(10) == [
        Resolved(Part("later", 0, 2), Stored(12, is_duplicate=False))
    ], "nobody waits for the first any more, but it has its place"
    assert sent(lane).base_sequence == 4


def test_what_has_expired_is_not_sent_again() -> None:
    lane = lane_with(2)
    lane.add("later", 2, 2 * RECORD_BYTES, PATIENCE_S + 5)
    lane.renewed(7)
    sent(lane)
    lane.expire(PATIENCE_S)
    lane.not_acknowledged(maybe_written=False)
    _, action = lane.decide(PATIENCE_S)
    assert action == Send(0, [Part("later", 0, 2)])


def test_a_batch_that_has_expired_ends_with_its_attempt() -> None:
    lane = lane_with(2)
    lane.renewed(7)
    sent(lane)
    lane.expire(PATIENCE_S)
    assert lane.next_deadline_s is None
    assert not lane.is_empty
    lane.not_acknowledged(maybe_written=True)
    assert lane.decide(PATIENCE_S) == ([], None)
    assert lane.is_empty


def test_a_leader_that_lost_records_gets_another_producer() -> None:
    lane = lane_with(1, 4)
    lane.renewed(7)
    sent(lane)
    lane.acknowledged(0)
    sent(lane)
    assert lane.out_of_step(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) == []
    assert isinstance(lane.decide(0.0)[1], Prepare)
    lane.renewed(8)
    assert sent(lane) == Send(0, [Part("run1", 0, 4)])
    lane.not_acknowledged(maybe_written=True)
    sent(lane)
    ((_, outcome),) = lane.out_of_step(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.maybe_written) == (ErrorCode.UNKNOWN_PRODUCER_ID, True)


def test_a_batch_that_an_older_attempt_has_written_is_acknowledged() -> None:
    lane = lane_with(1)
    lane.renewed(7)
    sent(lane)
    lane.not_acknowledged(maybe_written=True)
    sent(lane)
    assert lane.out_of_step(ErrorCode.DUPLICATE_SEQUENCE_NUMBER) == [
        Resolved(Part("run0", 0, 1), Stored(None, False))
    ]


def test_the_bad_record_of_a_refused_batch_is_found() -> None:
    lane = lane_with(3)
    lane.renewed(7)
    sent(lane)
    assert lane.rejected(ErrorCode.INVALID_RECORD, "bad") == []
    assert sent(lane) == Send(0, [Part("run0", 0, 1)])
    lane.acknowledged(5)
    assert sent(lane) == Send(1, [Part("run0", 1, 1)])
    ((part, outcome),) = lane.rejected(ErrorCode.INVALID_RECORD, "bad")
    assert (part, outcome) == (Part("run0", 1, 1), Refused(ErrorCode.INVALID_RECORD, "bad"))
    assert sent(lane) == Send(1, [Part("run0", 2, 1)])
    lane.add("good", 2, 2 * RECORD_BYTES, PATIENCE_S)
    lane.acknowledged(6)
    assert sent(lane) == Send(2, [Part("good", 0, 2)])


def test_without_numbers_nothing_is_prepared() -> None:
    lane = lane_with(1, is_numbered=False)
    assert sent(lane) == Send(-1, [Part("run0", 0, 1)])
    assert lane.producer_id == -1
    lane.not_acknowledged(maybe_written=True)
    assert sent(lane) == Send(-1, [Part("run0", 0, 1)])


@pytest.mark.parametrize("was_sent", [False, True])
def test_an_end_for_all(was_sent: bool) -> None:
    lane = lane_with(4, 1)
    lane.renewed(7)
    if was_sent:
        sent(lane)
        lane.not_acknowledged(maybe_written=True)
    resolved = lane.fail_all(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted")
    assert [each.part.run for each in resolved] == ["run0", "run1"]
    assert [each.outcome for each in resolved] == [
        Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted", was_sent),
        Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted"),
    ]
    assert lane.is_empty
