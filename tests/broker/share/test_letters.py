"""Dead letters of a share partition, whose leaders and writes may fail at every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinator.share.batches import merged
from broker.coordinator.share.letter_plans import newest_letters
from broker.share.letters import LetterDesk, LetterTarget
from broker.share.machine import SharePartition
from broker.share.values import (
    AcknowledgementBatch,
    AcknowledgeType,
    LetterPlan,
    Limits,
    ReadBatch,
    RecordState,
    StateBatch,
    StateWrite,
)

LIMITS = Limits(
    record_lock_duration_ms=100,
    delivery_count_limit=2,
    partition_max_record_locks=20,
    has_dead_letters=True,
)
TARGET = LetterTarget(b"d" * 16, 1)
OTHER = LetterTarget(b"e" * 16, 0)
ARCHIVING, REJECTED = RecordState.ARCHIVING, RecordState.ARCHIVING_REJECTED


def archiving(*offsets: int, start: int = 0) -> SharePartition:
    batches = merged((), [StateBatch(each, each, REJECTED, 1) for each in offsets], start)
    return SharePartition(start, batches, LIMITS)


def test_a_batch_of_letters() -> None:
    machine = archiving(0, 1, 3)
    desk = LetterDesk(machine, None)
    due = desk.due(10)
    assert due == [StateBatch(0, 1, REJECTED, 1), StateBatch(3, 3, REJECTED, 1)]
    assert desk.needs_producer(TARGET)
    write = desk.plan(TARGET, due, 77)
    assert write.batches == tuple(due)
    plan = LetterPlan(*TARGET, 77, 0, 1, ((0, 1), (3, 3)))
    assert write.letters == plan
    assert desk.due(10) == due  # nothing is under way before the plan is persisted
    desk.persisted(write)
    assert desk.under_way == plan
    assert desk.due(10) == []
    done = desk.archive()
    assert done.letters == LetterPlan(*TARGET, 77, 3, 2)
    assert machine.start_offset == 0
    machine.written(done.number, 0)
    desk.persisted(done)
    assert machine.start_offset == 2
    assert (machine.done_count, machine.archiving_count) == (1, 0)
    assert desk.under_way is None


def test_records_in_a_row_are_one_range_whatever_their_reasons() -> None:
    machine = SharePartition(
        0, [StateBatch(0, 0, ARCHIVING, 2), StateBatch(1, 1, REJECTED, 1)], LIMITS
    )
    write = LetterDesk(machine, None).plan(TARGET, machine.letters_due(9), 1)
    assert write.letters is not None
    assert write.letters.ranges == ((0, 1),)


def test_another_topic_has_another_producer() -> None:
    desk = LetterDesk(archiving(0), LetterPlan(*TARGET, 77, 5, 8))
    assert not desk.needs_producer(TARGET)
    assert desk.needs_producer(OTHER)
    assert desk.needs_producer(LetterTarget(TARGET.topic_id, 0))
    due = desk.due(1)
    assert desk.plan(TARGET, due, -1).letters == LetterPlan(*TARGET, 77, 5, 9, ((0, 0),))
    assert desk.plan(OTHER, due, 78).letters == LetterPlan(*OTHER, 78, 0, 10, ((0, 0),))


def test_letters_of_a_topic_that_is_gone_are_due_again() -> None:
    plan = LetterPlan(*TARGET, 77, 5, 8, ((0, 0),))
    desk = LetterDesk(archiving(0), plan)
    assert desk.due(5) == []
    desk.persisted(desk.abandon())
    assert desk.under_way is None
    assert desk.due(5) == [StateBatch(0, 0, REJECTED, 1)]


def test_sequences_begin_again_behind_the_last_one() -> None:
    plan = LetterPlan(*TARGET, 77, 2**31 - 2, 8, ((4, 6),))
    assert plan.letter_count == 3
    assert plan.finished == LetterPlan(*TARGET, 77, 1, 8)


def test_records_that_retention_took_are_not_archived_again() -> None:
    """Their letters are finished all the same, since the topic may have them."""
    machine = archiving(0, 1, 2)
    desk = LetterDesk(machine, LetterPlan(*TARGET, 77, 0, 1, ((0, 1),)))
    machine.log_begins_at(2, 0)
    write = desk.archive()
    assert (write.batches, write.start_offset) == ((), 2)
    assert write.letters == LetterPlan(*TARGET, 77, 2, 2)
    desk.persisted(write)
    assert desk.due(5) == [StateBatch(2, 2, REJECTED, 1)]


# ------------------------------------------------------------------------------- whole lives


class DeadLetterTopic:
    """A partition that takes each sequence of a producer once, as a partition log does."""

    def __init__(self) -> None:
        self.letters: list[int] = []
        self._next: dict[int, tuple[int, int]] = {}  # the last batch: sequence, count

    def write(self, plan: LetterPlan) -> None:
        last = self._next.get(plan.producer_id)
        batch = plan.sequence, plan.letter_count
        if batch == last:
            return  # a duplicate
        assert plan.sequence == (0 if last is None else sum(last)), "out of order"
        self._next[plan.producer_id] = batch
        for first, end in plan.ranges:
            self.letters += range(first, end + 1)


@dataclass
class Life:
    """A share partition with its share coordinator and its dead letter topic. Each step of the
    leader may be its last one, and each of its writes may fail although it is persisted."""

    topic: DeadLetterTopic = field(default_factory=DeadLetterTopic)
    batches: tuple[StateBatch, ...] = ()
    start: int = 0
    letters: LetterPlan | None = None
    now_ms: int = 1
    producers: int = 0
    late: list[StateWrite] = field(default_factory=list)
    """Writes of this leader that are still on their way."""

    def __post_init__(self) -> None:
        self.lead()

    def lead(self) -> None:
        """The next leader."""
        self.late.clear()  # a share coordinator refuses what an earlier leader sends
        batches = [each for each in self.batches if each.last >= self.start]
        self.machine = SharePartition(self.start, batches, LIMITS, self.now_ms)
        self.desk = LetterDesk(self.machine, self.letters)

    def persist(self, write: StateWrite, outcome: str, *, is_ours: bool = False) -> None:
        """``outcome``: persisted; unknown (persisted, and the answer is lost); late (as unknown,
        but later); or lost."""
        if outcome == "late":
            self.late.append(write)
        elif outcome != "lost":
            self.take(write)
        if outcome == "persisted":
            self.machine.written(write.number, self.now_ms)
            if is_ours:
                self.desk.persisted(write)
            return
        following = self.machine.failed(write.number, self.now_ms)
        if following is not None:
            self.persist(following, outcome)

    def take(self, write: StateWrite) -> None:
        """The share coordinator persists it."""
        self.start = max(self.start, write.start_offset)
        self.batches = merged(self.batches, write.batches, self.start)
        self.letters = newest_letters(self.letters, write.letters)

    def arrive(self, at: int) -> None:
        if self.late:
            self.take(self.late.pop(at % len(self.late)))

    def deliver(self, count: int, kind: AcknowledgeType, outcome: str) -> None:
        """A member gets records, and says one thing of all of them."""
        offset = self.machine.fetch_offset()
        if offset is None:
            return
        batch = ReadBatch(offset, offset + count - 1)
        got = self.machine.acquire("m", offset, [batch], count, self.now_ms, is_strict=True)
        for each in got:
            said = [AcknowledgementBatch(each.first, each.last, [kind])]
            write = self.machine.acknowledge("m", said, self.now_ms)
            if write is not None:
                self.persist(write, outcome)

    def wait(self, outcome: str) -> None:
        self.now_ms += 100
        write = self.machine.advance(self.now_ms)
        if write is not None:
            self.persist(write, outcome)

    def write_letters(self, most: int, steps: int, outcome: str) -> None:
        """So many steps of the leader, the last of which has this outcome."""
        for left in range(steps, 0, -1):
            result = outcome if left == 1 else "persisted"
            plan = self.desk.under_way
            if plan is None:
                due = self.desk.due(most)
                if not due:
                    return
                self.producers += 1
                self.persist(self.desk.plan(TARGET, due, self.producers), result, is_ours=True)
                continue
            self.topic.write(plan)
            self.persist(self.desk.archive(), result, is_ours=True)

    def archived(self) -> set[int]:
        """Which records the share coordinator takes for given up, where it still knows."""
        return {
            offset
            for each in self.batches
            if each.state is RecordState.ARCHIVED
            for offset in range(each.first, each.last + 1)
        }


OUTCOMES = st.sampled_from(["persisted", "persisted", "unknown", "late", "lost"])
KINDS = st.sampled_from([AcknowledgeType.REJECT, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE])
STEPS = st.one_of(
    st.tuples(st.just("deliver"), st.integers(1, 4), KINDS, OUTCOMES),
    st.tuples(st.just("deliver"), st.integers(1, 4), KINDS, st.just("persisted")),
    st.tuples(st.just("wait"), OUTCOMES),
    st.tuples(st.just("write_letters"), st.integers(1, 4), st.integers(1, 4), OUTCOMES),
    st.tuples(st.just("arrive"), st.integers(0, 3)),
    st.tuples(st.just("lead")),
)


@settings(max_examples=500, deadline=None)
@given(st.lists(STEPS, min_size=4, max_size=40))
def test_each_record_that_is_given_up_has_exactly_one_letter(steps: list[Any]) -> None:
    life = Life()
    for name, *arguments in steps:
        getattr(life, name)(*arguments)
        counts = Counter(life.topic.letters)
        assert set(counts.values()) <= {1}
        assert life.archived() <= set(counts)  # none is given up before it has its letter
    life.lead()
    while life.machine.archiving_count:
        life.write_letters(4, 2, "persisted")
    counts = Counter(life.topic.letters)
    assert set(counts.values()) <= {1}
    assert life.archived() <= set(counts)
    kept = {
        offset
        for each in life.machine.ranges()
        if each.state is RecordState.ACKNOWLEDGED
        for offset in range(each.first, each.last + 1)
    }
    assert not kept & set(counts)


def test_the_twin_notices_a_letter_that_is_written_before_its_plan_is_persisted() -> None:
    life = Life()
    life.deliver(1, AcknowledgeType.REJECT, "persisted")
    plan = life.desk.plan(TARGET, life.desk.due(1), 99).letters
    assert plan is not None
    life.topic.write(plan)  # and the leader dies
    life.lead()
    life.write_letters(1, 2, "persisted")
    assert life.topic.letters == [0, 0]
