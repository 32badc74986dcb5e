"""The lane with a deliberately dumb broker and a connection that loses requests and answers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.errors import ApiError, DeliveryTimeoutError, ErrorCode, SequenceError
from stele.producer.idempotence import SEQUENCE_MASK, Entry, Failed, Identity, Lane

ONE = Identity(1, 0)
TOO_LARGE = ApiError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
LATE = DeliveryTimeoutError("late", maybe_written=False)


def known_lane() -> Lane[str]:
    """A lane whose broker knows the producer from a batch that has no records here."""
    lane: Lane[str] = Lane()
    lane.give(ONE)
    lane.begun = True
    return lane


def lane_of(*counts: int) -> tuple[Lane[str], list[Entry[str]]]:
    lane = known_lane()
    entries = [lane.admit("abcdefgh"[i], count) for i, count in enumerate(counts)]
    return lane, entries


def admit_and_send(lane: Lane[str], name: str, count: int = 1) -> Entry[str]:
    entry = lane.admit(name, count)
    lane.sending(entry)
    return entry


def test_sequences_count_records_and_wrap() -> None:
    lane: Lane[str] = Lane()
    assert lane.needs_identity
    lane.give(ONE)
    lane.begun = True
    lane.next_sequence = SEQUENCE_MASK - 1
    entries = [admit_and_send(lane, name, 3) for name in "ab"]
    assert [entry.sequence for entry in entries] == [SEQUENCE_MASK - 1, 1]


def test_the_window_is_five() -> None:
    lane = known_lane()
    for name in "abcde":
        assert lane.may_admit()
        admit_and_send(lane, name)
    assert not lane.may_admit()


def test_the_first_batch_of_a_producer_goes_alone_until_it_is_acknowledged() -> None:
    lane: Lane[str] = Lane()
    lane.give(ONE)
    a = admit_and_send(lane, "a")
    assert not lane.may_admit()  # the broker could refuse the first and take the second
    lane.refused(a)
    assert lane.to_resend() is a
    lane.sending(a)
    assert not lane.may_admit()
    lane.written(a)
    b = admit_and_send(lane, "b")
    assert lane.may_admit()
    c = admit_and_send(lane, "c")
    lane.unknown(b)
    lane.unknown(c)
    lane.give_up(b, LATE)
    d = lane.admit("d", 1) if lane.may_admit() else None
    assert d is None
    lane.give(Identity(2, 0))
    admit_and_send(lane, "e")
    assert not lane.may_admit()  # another producer is as unknown


def test_under_a_new_producer_what_waits_goes_one_by_one_until_the_first_is_acknowledged() -> None:
    lane = known_lane()
    a, b, c = (admit_and_send(lane, name) for name in "abc")
    lane.unknown(a)
    lane.refused(b)
    lane.refused(c)
    lane.give_up(a, LATE)
    lane.give(Identity(2, 0))
    lane.sending(b)
    assert lane.to_resend() is None
    lane.written(b)
    assert lane.to_resend() is c


def test_under_a_new_producer_of_a_topic_made_anew_the_first_goes_alone_too() -> None:
    lane = known_lane()
    a, b, c = (admit_and_send(lane, name) for name in "abc")
    for entry in (a, b, c):
        lane.refused(entry)
    lane.sending(a)
    lane.written(a)
    lane.restart()
    lane.give(Identity(2, 0))
    assert [(entry.sequence, entry.identity) for entry in (b, c)] == [(0, (2, 0)), (1, (2, 0))]
    assert lane.to_resend() is b
    lane.sending(b)
    assert lane.to_resend() is None
    lane.written(b)
    assert lane.to_resend() is c


def test_a_lane_changes_its_producer_only_while_nothing_is_in_flight() -> None:
    lane = known_lane()
    a = admit_and_send(lane, "a")
    for call in (lambda: lane.give(Identity(2, 0)), lane.restart, lambda: lane.give_up(a, LATE)):
        with pytest.raises(AssertionError):
            call()
    lane.unknown(a)
    with pytest.raises(AssertionError):
        lane.admit("b", 1)


def test_batches_answered_before_the_oldest_keep_their_places_in_the_window() -> None:
    lane = known_lane()
    a, *others = (admit_and_send(lane, name) for name in "abcde")
    for entry in others:
        assert lane.written(entry) == []
        assert not lane.may_admit()  # a sixth would make the broker forget the first
    assert lane.written(a) == []
    assert lane.may_admit()


def test_after_a_failure_the_oldest_goes_alone_then_the_others_in_order() -> None:
    lane = known_lane()
    a, b, c = (admit_and_send(lane, name) for name in "abc")
    assert lane.refused(a) == []
    assert lane.to_resend() is None  # b and c are still on their way
    assert lane.out_of_order(b, "") == []
    assert lane.out_of_order(c, "") == []
    assert not lane.may_admit()
    assert lane.to_resend() is a
    lane.sending(a)
    assert lane.to_resend() is None
    lane.written(a)
    assert lane.to_resend() is b
    lane.sending(b)
    assert lane.to_resend() is c
    assert [b.sequence, c.sequence] == [1, 2]


def test_out_of_order_of_the_oldest_is_loud() -> None:
    lane, (a,) = lane_of(1)
    lane.sending(a)
    with pytest.raises(SequenceError, match="acknowledged records may be lost"):
        lane.out_of_order(a, "")


def test_out_of_order_that_comes_after_the_answer_before_it_is_no_alarm() -> None:
    lane = known_lane()
    a, b = (admit_and_send(lane, name) for name in "ab")
    lane.written(a)
    assert lane.out_of_order(b, "") == []
    assert lane.to_resend() is b


def test_a_rejected_batch_gives_its_sequences_to_later_batches() -> None:
    lane = known_lane()
    a, b = (admit_and_send(lane, name, 2) for name in "ab")
    assert lane.rejected(a, TOO_LARGE) == []
    assert lane.out_of_order(b, "") == [Failed("a", TOO_LARGE, False)]
    assert lane.to_resend() is b
    assert (b.sequence, b.identity, lane.next_sequence) == (0, ONE, 2)


def test_a_batch_given_up_with_unknown_outcome_costs_the_producer_id() -> None:
    lane = known_lane()
    a, b, c = (admit_and_send(lane, name) for name in "abc")
    lane.unknown(a)
    lane.unknown(b)
    lane.out_of_order(c, "")
    failed = lane.give_up(a, LATE)
    assert failed == [Failed("a", LATE, True), Failed("b", LATE, True)]
    assert lane.needs_identity
    assert lane.to_resend() is None
    lane.give(Identity(2, 0))
    assert lane.to_resend() is c
    assert (c.sequence, c.identity.producer_id) == (0, 2)


def test_of_two_given_up_each_fails_for_its_own_reason() -> None:
    lane = known_lane()
    a, b = (admit_and_send(lane, name) for name in "ab")
    lane.unknown(a)
    lane.unknown(b)
    later = DeliveryTimeoutError("later", maybe_written=True)
    assert lane.give_up(b, later) == []
    assert lane.give_up(a, LATE) == [Failed("a", LATE, True), Failed("b", later, True)]


def test_a_forgotten_producer_starts_afresh() -> None:
    lane = known_lane()
    a, b = (admit_and_send(lane, name) for name in "ab")
    assert lane.unknown_producer(a, "") == []
    (failed,) = lane.unknown(b)
    assert failed.batch == "b"
    assert isinstance(failed.cause, SequenceError)
    assert lane.needs_identity


def test_without_idempotence_nothing_is_numbered() -> None:
    lane: Lane[str] = Lane(numbered=False)
    a = admit_and_send(lane, "a")
    assert (a.sequence, a.identity.producer_id) == (-1, -1)
    lane.unknown(a)
    assert lane.give_up(a, LATE) == [Failed("a", LATE, True)]
    assert not lane.needs_identity
    assert lane.may_admit()


def test_without_idempotence_a_batch_that_fails_takes_no_other_with_it() -> None:
    lane: Lane[str] = Lane(numbered=False)
    a, b = (admit_and_send(lane, name) for name in "ab")
    lane.unknown(a)
    lane.unknown(b)
    assert lane.give_up(a, LATE) == [Failed("a", LATE, True)]
    assert lane.to_resend() is b
    assert (b.sequence, b.identity.producer_id) == (-1, -1)


def test_a_rejected_batch_before_one_that_may_be_written_costs_the_producer_id() -> None:
    """Under the old id the later batch cannot be sent with other sequences: it could be in the log
    twice."""
    lane = known_lane()
    a, b, c = (admit_and_send(lane, name) for name in "abc")
    lane.unknown(b)
    lane.refused(c)
    assert lane.rejected(a, TOO_LARGE) == [
        Failed("a", TOO_LARGE, False),
        Failed("b", TOO_LARGE, True),
    ]
    assert lane.needs_identity
    lane.give(Identity(2, 0))
    assert lane.to_resend() is c
    assert (c.identity, c.sequence) == (Identity(2, 0), 0)


# ------------------------------------------------------------------- too large


def test_the_parts_of_a_batch_take_its_place_and_its_sequences() -> None:
    lane = known_lane()
    a, b, c = (admit_and_send(lane, name, 3) for name in "abc")
    assert lane.split(b, [("b1", 1), ("b2", 2)]) == []
    assert [entry.batch for entry in lane.window] == ["a", "b1", "b2", "c"]
    assert [entry.sequence for entry in lane.window] == [0, 3, 4, 6]
    assert lane.to_resend() is None  # others are on their way
    assert lane.out_of_order(c, "") == []
    lane.written(a)
    b1, b2 = lane.window[0], lane.window[1]
    for head in (b1, b2, c):
        assert lane.to_resend() is head
        lane.sending(head)
        lane.written(head)
    assert lane.admit("d", 1).sequence == 9


def test_parts_count_in_the_window() -> None:
    lane = known_lane()
    a, *others = (admit_and_send(lane, name, 4) for name in "abcde")
    lane.split(a, [("a1", 2), ("a2", 2)])
    for entry in others:
        lane.out_of_order(entry, "")
    head = lane.to_resend()
    assert head is lane.window[0]
    lane.sending(head)
    lane.split(head, [("a11", 1), ("a12", 1)])
    head = lane.window[0]
    lane.sending(head)
    lane.written(head)
    sent = []
    while (ready := lane.to_resend()) is not None:
        lane.sending(ready)
        sent.append(ready.batch)
    assert sent == ["a12", "a2", "b", "c", "d"]  # a sixth would make the broker forget the first
    assert not lane.may_admit()
    lane.written(lane.window[0])
    assert lane.to_resend() is others[-1]


def test_a_batch_that_may_be_written_or_has_one_record_is_not_split() -> None:
    lane = known_lane()
    a, b = admit_and_send(lane, "a", 2), admit_and_send(lane, "b", 1)
    assert lane.may_split(a)
    assert not lane.may_split(b)
    with pytest.raises(AssertionError):  # records would be lost, or the sequences have a gap
        lane.split(a, [("x", 1)])
    lane.unknown(a)
    assert not lane.may_split(a)
    for entry, parts in ((a, [("x", 1), ("y", 1)]), (b, [("x", 1)])):
        with pytest.raises(AssertionError):
            lane.split(entry, parts)


def test_without_idempotence_parts_have_no_sequence() -> None:
    lane: Lane[str] = Lane(numbered=False)
    a = admit_and_send(lane, "a", 2)
    lane.split(a, [("a1", 1), ("a2", 1)])
    assert [entry.sequence for entry in lane.window] == [-1, -1]
    with pytest.raises(AssertionError):
        lane.split(lane.window[0], [("x", 1), ("y", 1)])


# ------------------------------------------------------------- against a dumb broker


@dataclass
class DumbBroker:
    """One partition. It remembers the last five batches of each producer, as real brokers do."""

    log: list[int] = field(default_factory=list)
    batches: dict[Identity, deque[tuple[int, int]]] = field(default_factory=dict)
    expected: dict[Identity, int] = field(default_factory=dict)
    max_records: int = 4

    def produce(self, identity: Identity, sequence: int, records: tuple[int, ...]) -> str:
        if len(records) > self.max_records:  # whether it has the batch or not, as real brokers
            return "too large"
        batches = self.batches.setdefault(identity, deque(maxlen=5))
        if (sequence, len(records)) in batches:
            return "written"
        if sequence != self.expected.get(identity, sequence):  # anything from one it does not know
            return "out_of_order"
        batches.append((sequence, len(records)))
        self.expected[identity] = sequence + len(records)
        self.log.extend(records)
        return "written"


Request = tuple[Entry[tuple[int, ...]], Identity, int, int]


class World:
    """A producer of one lane, a dumb broker, and a connection that fails as the test says."""

    def __init__(self) -> None:
        self.lane: Lane[tuple[int, ...]] = Lane()
        self.broker = DumbBroker()
        self.wire: deque[Request] = deque()  # on its way, in order
        self.answers: list[tuple[Request, str]] = []  # of the broker, on their way in any order
        self.ghosts: deque[Request] = deque()  # given up by the client, may still arrive
        self.next_record = 0
        self.next_producer = 0
        self.acknowledged: list[int] = []
        self.failed: dict[int, bool] = {}

    def note(self, failed: list[Failed[tuple[int, ...]]]) -> None:
        for each in failed:
            self.failed.update(dict.fromkeys(each.batch, each.maybe_written))

    def send(self, size: int) -> None:
        """Send what waits, or a new batch of ``size`` records (0: no new batch)."""
        if self.lane.needs_identity:
            if self.lane.any_in_flight:
                return
            self.lane.give(Identity(self.next_producer, 0))
            self.next_producer += 1
        entry = self.lane.to_resend()
        if entry is None:
            if not size or not self.lane.may_admit():
                return
            batch = tuple(range(self.next_record, self.next_record + size))
            self.next_record += size
            entry = self.lane.admit(batch, size)
        attempt = self.lane.sending(entry)
        self.wire.append((entry, entry.identity, entry.sequence, attempt))

    def deliver(self, outcome: str) -> None:
        """Deliver or lose the oldest request on the wire."""
        if not self.wire:
            return
        entry, identity, sequence, _ = self.wire.popleft()
        lane = self.lane
        if outcome == "arrive":
            self.hear(entry, self.broker.produce(identity, sequence, entry.batch))
        elif outcome == "arrive only":
            answer = self.broker.produce(identity, sequence, entry.batch)
            self.answers.append(((entry, identity, sequence, 0), answer))
        elif outcome == "refuse":
            self.note(lane.refused(entry))
        elif outcome == "reject":
            self.note(lane.rejected(entry, TOO_LARGE))
        elif outcome == "lose answer":
            self.broker.produce(identity, sequence, entry.batch)
            self.note(lane.unknown(entry))
        elif outcome == "lose request":
            self.note(lane.unknown(entry))
        else:
            self.ghosts.append((entry, identity, sequence, 0))
            self.note(lane.unknown(entry))

    def hear(self, entry: Entry[tuple[int, ...]], answer: str) -> None:
        if answer == "written":
            self.acknowledged.extend(entry.batch)
            self.note(self.lane.written(entry))
        elif answer == "too large" and self.lane.may_split(entry):
            middle = len(entry.batch) // 2
            halves = entry.batch[:middle], entry.batch[middle:]
            self.note(self.lane.split(entry, [(half, len(half)) for half in halves]))
        elif answer == "too large":
            self.note(self.lane.rejected(entry, TOO_LARGE))
        else:
            self.note(self.lane.out_of_order(entry, answer))

    def answer(self, number: int, *, lost: bool) -> None:
        """One of the answers under way arrives, or never will."""
        if self.answers:
            (entry, *_), answer = self.answers.pop(number % len(self.answers))
            if lost:
                self.note(self.lane.unknown(entry))
            else:
                self.hear(entry, answer)

    def give_up(self) -> None:
        if self.lane.window and not self.lane.any_in_flight:
            self.note(self.lane.give_up(self.lane.window[0], LATE))

    def haunt(self) -> None:
        """A request that the client has given up arrives after all."""
        if self.ghosts:
            entry, identity, sequence, _ = self.ghosts.popleft()
            self.broker.produce(identity, sequence, entry.batch)


STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 4)),
    st.tuples(st.just("limit"), st.integers(1, 4)),
    st.tuples(
        st.just("deliver"),
        st.sampled_from(
            [
                *("arrive", "arrive", "arrive only", "arrive only"),
                *("refuse", "reject", "lose answer", "lose request", "delay"),
            ]
        ),
    ),
    st.tuples(st.just("flow"), st.integers(2, 6)),
    st.tuples(st.just("answer"), st.integers(0, 4)),
    st.tuples(st.just("lose answer"), st.integers(0, 4)),
    st.tuples(st.just("give up"), st.none()),
    st.tuples(st.just("haunt"), st.none()),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=60))
def test_acknowledged_once_in_order_and_never_twice(steps: list[tuple[str, object]]) -> None:
    world = World()
    for action, argument in steps:
        if action == "send":
            assert isinstance(argument, int)
            world.send(argument)
        elif action == "deliver":
            world.deliver(str(argument))
        elif action == "limit":
            assert isinstance(argument, int)
            world.broker.max_records = argument
        elif action == "flow":
            assert isinstance(argument, int)
            for _ in range(argument):
                world.send(1)
                world.deliver("arrive")
        elif action in ("answer", "lose answer"):
            assert isinstance(argument, int)
            world.answer(argument, lost=action == "lose answer")
        elif action == "give up":
            world.give_up()
        else:
            world.haunt()
    while world.lane.window or world.wire:  # the weather clears up
        world.answer(0, lost=False)
        world.send(0)
        world.deliver("arrive")
    while world.ghosts:
        world.haunt()

    log = world.broker.log
    assert len(set(log)) == len(log), "written twice"
    assert set(world.acknowledged) <= set(log), "acknowledged and missing"
    kept = [record for record in log if record not in world.failed]
    assert kept == sorted(kept), "out of order"
    for record in range(world.next_record):
        assert (record in world.failed) != (record in world.acknowledged)
        if world.failed.get(record) is False:
            assert record not in log, "reported as surely not written, but it was"
