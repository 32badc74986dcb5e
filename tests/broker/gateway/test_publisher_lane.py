"""Lanes of several brokers for one publisher, against a log that loses what is not committed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.gateway.lanes import Part, Prepare, Refused, Resolved, Send, Stored
from broker.gateway.publisher_lane import SEQUENCES, KnownBatch, PublisherLane
from stele.errors import ErrorCode

PUBLISHER = 7
BATCH_BYTES = 40
RECORD_BYTES = 10
FOREVER_S = 1e9


@dataclass
class Batch:
    base_sequence: int
    records: list[int]
    base_offset: int


@dataclass
class Leader:
    """The log of a partition with one publisher, as KIP-98 has its leaders accept batches."""

    batches: list[Batch] = field(default_factory=list)
    high_watermark: int = 0

    @property
    def end(self) -> int:
        return self.batches[-1].base_offset + len(self.batches[-1].records) if self.batches else 0

    @property
    def records(self) -> list[int]:
        return [record for batch in self.batches for record in batch.records]

    def append(self, base_sequence: int, records: list[int]) -> int | None:
        """The base offset; None: the batch is out of order."""
        for batch in self.batches[-5:]:
            if (batch.base_sequence, len(batch.records)) == (base_sequence, len(records)):
                return batch.base_offset
        if self.batches:
            last = self.batches[-1]
            if base_sequence != last.base_sequence + len(last.records):
                return None
        self.batches.append(Batch(base_sequence, records, self.end))
        return self.batches[-1].base_offset

    def known(self) -> list[KnownBatch]:
        return [
            KnownBatch(b.base_sequence, b.base_sequence + len(b.records) - 1, b.base_offset)
            for b in self.batches[-5:]
        ]

    def commit(self, rng: random.Random) -> None:
        self.high_watermark = rng.randint(self.high_watermark, self.end)

    def fail_over(self, rng: random.Random) -> None:
        """The next leader has all that is committed, and perhaps some of the rest."""
        while self.batches and self.batches[-1].base_offset >= self.high_watermark:
            if rng.random() < 0.5:
                break
            self.batches.pop()


def values_of(part: Part[Sequence[int]]) -> list[int]:
    return list(part.run[part.first : part.first + part.record_count])


def values(sent: Send[Sequence[int]]) -> list[int]:
    return [value for part in sent.parts for value in values_of(part)]


class Broker:
    """A lane, whose requests and answers may be lost or late."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lane: PublisherLane[Sequence[int]] = PublisherLane(PUBLISHER, BATCH_BYTES)
        self._sent: Send[Sequence[int]] | None = None
        self._appended_at: int | None = None  # the base offset of what was sent, once it is written

    def step(self) -> None:
        world, rng = self._world, self._world.rng
        if self._sent is not None:
            self._finish(self._sent)
            return
        resolved, action = self.lane.decide(0.0)
        world.resolved(self, resolved)
        if isinstance(action, Prepare):
            if rng.random() < 0.8:  # else the answer is lost, and it asks again
                self.lane.known(world.leader.known(), world.leader.high_watermark)
        elif action is not None:
            self._sent, self._appended_at = action, None
            if rng.random() < 0.2:  # the request is late: it may arrive after the lane has given up
                world.late.append((action.base_sequence, values(action)))

    def _finish(self, sent: Send[Sequence[int]]) -> None:
        """Whatever may have become of the batch that is under way."""
        world, rng = self._world, self._world.rng
        fate = rng.random()
        if self._appended_at is None and fate < 0.6:
            offset = world.leader.append(sent.base_sequence, values(sent))
            if offset is None:
                self._sent = None
                self.lane.not_acknowledged(maybe_written=False)
            else:
                self._appended_at = offset
        elif fate < 0.75 or self._appended_at is None:
            self._sent = None  # it gives up
            self.lane.not_acknowledged(maybe_written=True)
        elif world.holds(self._appended_at, values(sent)):
            self._sent = None
            world.resolved(self, self.lane.acknowledged(self._appended_at))


class World:
    """One publisher, its records in order, and the brokers that it has used."""

    def __init__(self, seed: int, count: int) -> None:
        self.rng = random.Random(seed)
        self.leader = Leader()
        self.late: list[tuple[int, list[int]]] = []
        self.count = count
        self.told: dict[int, int | None] = {}  # records that were acknowledged, with their offsets
        self.brokers: list[Broker] = []
        self.current: Broker
        self.next = 0
        self.change_broker()

    def change_broker(self) -> None:
        """The stream broke: all that has no answer is sent again, in its order."""
        self.current = Broker(self)
        self.brokers = [*self.brokers[-2:], self.current]
        self.next = min((n for n in range(self.count) if n not in self.told), default=self.count)

    def holds(self, offset: int, records: list[int]) -> bool:
        """Whether these records are committed at this offset: then they are acknowledged."""
        end = offset + len(records)
        return self.leader.high_watermark >= end and self.leader.records[offset:end] == records

    def resolved(self, broker: Broker, resolved: list[Resolved[Sequence[int]]]) -> None:
        for part, outcome in resolved:
            records = values_of(part)
            assert isinstance(outcome, Stored), f"{records}: {outcome}"
            committed = self.leader.records[: self.leader.high_watermark]
            for number, record in enumerate(records):
                assert record in committed, f"{record} is told to be stored"
                offset = None if outcome.base_offset is None else outcome.base_offset + number
                if offset is not None:
                    assert committed[offset] == record
                if broker is self.current:
                    assert record not in self.told
                    self.told[record] = offset

    def step(self, *, calm: bool) -> None:
        rng = self.rng
        event = rng.random() * (0.7 if calm else 1.0)
        if event < 0.2 and self.next < self.count:
            count = rng.randint(1, min(6, self.count - self.next))
            run = range(self.next, self.next + count)
            self.current.lane.add(self.next, run, count, count * RECORD_BYTES, FOREVER_S)
            self.next += count
        elif event < 0.5:
            rng.choice(self.brokers).step()
        elif event < 0.7:
            self.leader.commit(rng)
        elif event < 0.8:
            self.leader.fail_over(rng)
        elif event < 0.9 and self.late:
            self.leader.append(*self.late.pop(rng.randrange(len(self.late))))
        elif event > 0.95:
            self.change_broker()
        assert self.leader.records == list(range(len(self.leader.records)))


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(1, 20))
def test_every_record_is_written_once_and_in_order(seed: int, count: int) -> None:
    world = World(seed, count)
    for _ in range(400):
        world.step(calm=False)
    world.change_broker()
    for _ in range(20_000):
        if len(world.told) == count:
            break
        world.step(calm=True)
    assert sorted(world.told) == list(range(count))
    assert world.leader.records[:count] == list(range(count))


# ------------------------------------------------------------------------------ one lane


def alone(*records: str) -> list[Part[str]]:
    """Runs of one record."""
    return [Part(record, 0, 1) for record in records]


def lane_with(*sequences: int, deadline_s: float = FOREVER_S) -> PublisherLane[str]:
    lane: PublisherLane[str] = PublisherLane(PUBLISHER, BATCH_BYTES)
    for sequence in sequences:
        lane.add(sequence, f"r{sequence}", 1, RECORD_BYTES, deadline_s)
    return lane


def sent(lane: PublisherLane[str]) -> Send[str]:
    resolved, action = lane.decide(0.0)
    assert resolved == []
    assert isinstance(action, Send)
    return action


def test_a_lane_without_records_asks_nobody() -> None:
    assert lane_with().decide(0.0) == ([], None)


def test_the_offset_of_a_log_that_begins_is_remembered() -> None:
    lane = lane_with(0, 1)
    lane.known([], 0)
    sent(lane)
    lane.acknowledged(0)
    lane.add(1, "again", 1, RECORD_BYTES, FOREVER_S)
    ((_, outcome),), _ = lane.decide(0.0)
    assert outcome == Stored(1, True)


def test_the_last_record_of_a_refused_batch_goes_alone_too() -> None:
    lane = lane_with(0, 1)
    lane.known([], 0)
    sent(lane)
    lane.rejected(ErrorCode.INVALID_RECORD, "bad")
    lane.add(2, "r2", 1, RECORD_BYTES, FOREVER_S)
    lane.add(3, "r3", 1, RECORD_BYTES, FOREVER_S)
    assert sent(lane).parts == alone("r0")
    lane.acknowledged(0)
    assert sent(lane).parts == alone("r1")
    lane.acknowledged(1)
    assert sent(lane).parts == alone("r2", "r3")


def test_it_asks_before_it_does_anything() -> None:
    lane = lane_with(0)
    assert isinstance(lane.decide(0.0)[1], Prepare)
    lane.known([], 0)
    assert sent(lane) == Send(0, alone("r0"))


def test_what_the_leader_has_is_answered_with_its_offset_where_that_is_known() -> None:
    lane = lane_with(3, 4, 5, 6, 7)
    assert lane.known([KnownBatch(4, 4, 104), KnownBatch(5, 6, 110)], 112)
    resolved, action = lane.decide(0.0)
    assert [outcome for _, outcome in resolved] == [
        Stored(None, True),
        Stored(104, True),
        Stored(110, True),
        Stored(111, True),
    ]
    assert action == Send(7, alone("r7"))


@pytest.mark.parametrize("high_watermark", [0, 110, 111])
def test_what_is_not_committed_is_waited_for(high_watermark: int) -> None:
    lane = lane_with(6, 7)
    assert not lane.known([KnownBatch(5, 6, 110)], high_watermark)
    assert isinstance(lane.decide(0.0)[1], Prepare)


def test_a_gap_and_a_forgotten_publisher_are_refused() -> None:
    lane = lane_with(9)
    lane.known([KnownBatch(5, 6, 110)], 112)
    ((_, outcome),), action = lane.decide(0.0)
    assert isinstance(outcome, Refused)
    assert outcome.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome.message == "sequence 9: 7 is next in this partition"
    assert not outcome.maybe_written
    assert action is None
    lane = lane_with(1)
    lane.known([], 112)
    ((_, outcome),), action = lane.decide(0.0)
    assert isinstance(outcome, Refused)
    assert outcome.code is ErrorCode.UNKNOWN_PRODUCER_ID
    assert action is None


def test_a_batch_has_consecutive_records_that_fit() -> None:
    lane = lane_with(0, 1, 2, 3, 4, 6)
    lane.known([], 0)
    assert sent(lane) == Send(0, alone("r0", "r1", "r2", "r3"))
    assert [outcome for _, outcome in lane.acknowledged(7)] == [
        Stored(7 + i, False) for i in range(4)
    ]
    assert sent(lane) == Send(4, alone("r4"))
    lane.add(4, "again", 1, RECORD_BYTES, FOREVER_S)
    lane.acknowledged(-1)
    resolved, _ = lane.decide(0.0)
    assert [type(outcome) for _, outcome in resolved] == [Refused, Stored]
    assert resolved[1].outcome == Stored(None, True)


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    lane: PublisherLane[str] = PublisherLane(PUBLISHER, BATCH_BYTES)
    lane.add(0, "large", 1, BATCH_BYTES + 1, FOREVER_S)
    lane.add(1, "small", 1, 1, FOREVER_S)
    lane.known([], 0)
    assert sent(lane) == Send(0, alone("large"))


def test_a_refused_batch_is_sent_record_by_record_to_find_the_bad_one() -> None:
    lane = lane_with(0, 1, 2)
    lane.known([], 0)
    assert sent(lane).parts == alone("r0", "r1", "r2")
    assert lane.rejected(ErrorCode.INVALID_RECORD, "bad") == []
    assert sent(lane).parts == alone("r0")
    lane.acknowledged(0)
    assert sent(lane).parts == alone("r1")
    ((part, outcome),) = lane.rejected(ErrorCode.INVALID_RECORD, "bad")
    assert (part.run, outcome) == ("r1", Refused(ErrorCode.INVALID_RECORD, "bad"))
    ((part, outcome),), action = lane.decide(0.0)
    assert part.run == "r2"
    assert isinstance(outcome, Refused)
    assert action is None  # the publisher sends 1 and 2 again, as it should be


def test_records_that_wait_too_long_are_refused() -> None:
    lane = lane_with(0, 1, deadline_s=5.0)
    lane.add(2, "r2", 1, RECORD_BYTES, 6.0)
    lane.known([], 0)
    assert sent(lane).base_sequence == 0
    lane.not_acknowledged(maybe_written=True)
    assert lane.next_deadline_s == 5.0
    resolved, action = lane.decide(5.0)
    message = "the leader did not answer in time, or there was none"
    expected = Refused(ErrorCode.REQUEST_TIMED_OUT, message, maybe_written=True)
    assert resolved == [Resolved(part, expected) for part in alone("r0", "r1")]
    assert isinstance(action, Prepare)
    lane.known([], 0)
    ((_, outcome),), action = lane.decide(5.0)  # what may have been written is said to be so
    assert isinstance(outcome, Refused)
    assert outcome.maybe_written
    assert lane.is_empty


def test_records_expire_while_they_are_under_way() -> None:
    lane = lane_with(0, 1, deadline_s=5.0)
    lane.add(2, "r2", 1, RECORD_BYTES, 6.0)
    lane.known([], 0)
    assert len(sent(lane).parts) == 3
    lane.add(3, "r3", 1, RECORD_BYTES, 6.0)
    assert lane.expire(4.0) == []
    resolved = lane.expire(5.0)
    assert [part for part, _ in resolved] == alone("r0", "r1")
    assert all(isinstance(each, Refused) and each.maybe_written for _, each in resolved)
    assert lane.expire(5.0) == []
    assert lane.next_deadline_s == 6.0
    ((part, outcome),) = lane.acknowledged(10)
    assert (part, outcome) == (Part("r2", 0, 1), Stored(12, is_duplicate=False))
    assert sent(lane).base_sequence == 3


def test_what_has_expired_under_way_is_reported_once() -> None:
    lane = lane_with(0, deadline_s=5.0)
    lane.add(1, "r1", 1, RECORD_BYTES, 9.0)
    lane.known([], 0)
    sent(lane)
    assert len(lane.expire(5.0)) == 1
    lane.not_acknowledged(maybe_written=False)
    resolved, action = lane.decide(5.0)
    assert (resolved, type(action)) == ([], Prepare)
    lane.known([KnownBatch(0, 0, 7)], 8)
    _, action = lane.decide(5.0)
    assert action == Send(1, alone("r1"))
    assert [part for part, _ in lane.fail_all(ErrorCode.UNKNOWN_SERVER_ERROR, "")] == alone("r1")


def test_an_end_for_all() -> None:
    lane = lane_with(0, 1)
    resolved = lane.fail_all(ErrorCode.INVALID_PRODUCER_EPOCH, "fenced")
    assert [outcome for _, outcome in resolved] == [
        Refused(ErrorCode.INVALID_PRODUCER_EPOCH, "fenced")
    ] * 2


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_a_publisher_counts_on_where_the_leader_begins_again(turns: int) -> None:
    base = turns * SEQUENCES
    last = base + SEQUENCES - 1
    lane = lane_with(last - 1, last, last + 1, last + 2)
    batches = [KnownBatch(SEQUENCES - 4, SEQUENCES - 2, 10), KnownBatch(SEQUENCES - 1, 0, 13)]
    assert lane.known(batches, 15)
    resolved, action = lane.decide(0.0)
    assert [outcome for _, outcome in resolved] == [
        Stored(12, True),
        Stored(13, True),
        Stored(14, True),
    ]
    assert action == Send(1, alone(f"r{last + 2}"))


def outcome_of(lane: PublisherLane[str], sequence: int) -> Stored | Refused:
    """Of a record that needs no leader."""
    lane.add(sequence, f"r{sequence}", 1, RECORD_BYTES, FOREVER_S)
    ((_, outcome),), action = lane.decide(0.0)
    assert action is None
    return outcome


def test_what_this_lane_has_written_is_remembered_as_the_leader_does() -> None:
    lane = lane_with(0, 1)
    lane.known([], 0)
    sent(lane)
    lane.acknowledged(7)
    assert outcome_of(lane, 1) == Stored(8, True)
    gap = outcome_of(lane, 5)
    assert isinstance(gap, Refused)
    assert gap.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_leader_that_knows_nothing_any_more_is_believed() -> None:
    lane = lane_with(7)
    lane.known([KnownBatch(5, 6, 110)], 112)
    sent(lane)
    lane.not_acknowledged(maybe_written=False)
    lane.known([], 0)
    ((_, outcome),), _ = lane.decide(0.0)
    assert isinstance(outcome, Refused)
    assert outcome.code is ErrorCode.UNKNOWN_PRODUCER_ID
    for sequence in range(7):
        lane.add(sequence, f"r{sequence}", 1, RECORD_BYTES, FOREVER_S)
    for base_offset in (0, 4):
        sent(lane)
        lane.acknowledged(base_offset)
    assert outcome_of(lane, 6) == Stored(6, True)


def test_offsets_come_from_the_leaders_last_answer() -> None:
    lane = lane_with(7)
    for offset in (110, 210):
        lane.known([KnownBatch(5, 6, offset)], 300)
        sent(lane)
        lane.not_acknowledged(maybe_written=True)
    lane.known([KnownBatch(6, 7, 311)], 400)
    assert lane.decide(0.0)[0] == [Resolved(Part("r7", 0, 1), Stored(312, True))]
    assert outcome_of(lane, 5) == Stored(None, True)


# ------------------------------------------------------------------------------ runs


def lane_with_run(sequence: int, record_count: int) -> PublisherLane[str]:
    lane: PublisherLane[str] = PublisherLane(PUBLISHER, BATCH_BYTES)
    lane.add(sequence, "run", record_count, RECORD_BYTES * record_count, FOREVER_S)
    return lane


def test_a_run_is_split_where_the_publisher_has_come_to() -> None:
    lane = lane_with_run(2, 6)
    assert lane.known([KnownBatch(3, 4, 103), KnownBatch(5, 5, 200)], 201)
    resolved, action = lane.decide(0.0)
    assert resolved == [
        Resolved(Part("run", 0, 1), Stored(None, True)),
        Resolved(Part("run", 1, 2), Stored(103, True)),
        Resolved(Part("run", 3, 1), Stored(200, True)),
    ]
    assert action == Send(6, [Part("run", 4, 2)])
    assert lane.acknowledged(300) == [Resolved(Part("run", 4, 2), Stored(300, False))]


def test_the_records_of_a_refused_run_are_sent_one_by_one() -> None:
    lane = lane_with_run(0, 3)
    lane.known([], 0)
    assert sent(lane).parts == [Part("run", 0, 3)]
    assert lane.rejected(ErrorCode.INVALID_RECORD, "bad") == []
    assert sent(lane).parts == [Part("run", 0, 1)]
    lane.acknowledged(0)
    assert sent(lane).parts == [Part("run", 1, 1)]
    assert [each.part for each in lane.rejected(ErrorCode.INVALID_RECORD, "bad")] == [
        Part("run", 1, 1)
    ]
    (resolved,), action = lane.decide(0.0)
    assert resolved.part == Part("run", 2, 1)
    assert isinstance(resolved.outcome, Refused)
    assert action is None
