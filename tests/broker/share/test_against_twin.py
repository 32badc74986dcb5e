"""The share partition beside a twin that keeps a dictionary of every offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.share.machine import SharePartition
from broker.share.values import (
    NO_TIME,
    AcknowledgementBatch,
    AcknowledgeType,
    DeliveryEnd,
    Limits,
    ReadBatch,
    RecordState,
    StateBatch,
    StateWrite,
)
from stele.errors import ApiError

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
ARCHIVING, REJECTED = RecordState.ARCHIVING, RecordState.ARCHIVING_REJECTED
LIMITS = Limits(
    record_lock_duration_ms=100,
    delivery_count_limit=4,
    partition_max_record_locks=12,
    backoff_ms=30,
    backoff_max_ms=70,
)
AT_ONCE = LIMITS._replace(backoff_ms=0)
LETTERS = AT_ONCE._replace(has_dead_letters=True)


@dataclass
class Record:
    """One offset as the twin knows it."""

    state: RecordState = AVAILABLE
    count: int = 0
    holder: str = ""
    lock_until_ms: int = 0
    due_ms: int = 0
    write: int = -1
    acquired_ms: int = field(default=0, compare=False)
    vain: tuple[DeliveryEnd, str, int] | None = field(default=None, compare=False)

    @property
    def is_deliverable(self) -> bool:
        return self.state is AVAILABLE and self.due_ms == 0


@dataclass
class Twin:
    """Every offset on its own, and every question answered by looking at all of them."""

    limits: Limits
    start: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    decisions: dict[int, dict[int, RecordState]] = field(default_factory=dict)

    @property
    def given_up(self) -> RecordState:
        """The state after the last delivery."""
        return ARCHIVING if self.limits.has_dead_letters else ARCHIVED

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def move_up(self) -> None:
        while self.start in self.records and self.records[self.start].state.is_final:
            del self.records[self.start]
            self.start += 1

    def fetch_offset(self) -> int | None:
        for offset in sorted(self.records):
            if self.records[offset].is_deliverable:
                return offset
        return self.end if len(self.records) < self.limits.partition_max_record_locks else None

    def note(self, offset: int, *, has_record: bool) -> None:
        if offset in self.records:
            if not has_record and self.records[offset].state is AVAILABLE:
                self.records[offset].state = ARCHIVED
        elif offset == self.end and not has_record and not self.records:
            self.start += 1
        elif offset == self.end and len(self.records) < self.limits.partition_max_record_locks:
            self.records[offset] = Record(AVAILABLE if has_record else ARCHIVED)

    def deliverable(
        self, offset: int, read: Sequence[ReadBatch], max_records: int, *, is_strict: bool
    ) -> list[int]:
        """The offsets that a member gets if there are no suspects."""
        found: list[int] = []
        for batch in read:
            for each in range(offset, batch.last + 1):
                self.note(each, has_record=batch.is_deliverable and each >= batch.first)
            there = [
                each
                for each in range(max(offset, batch.first), batch.last + 1)
                if each in self.records and self.records[each].is_deliverable
            ]
            if batch.is_deliverable and len(found) < max_records:
                found += there[: max_records - len(found)] if is_strict else there
            offset = max(offset, batch.last + 1)
            if offset > self.end or len(found) >= max_records:
                break
        return found

    def end_delivery(self, record: Record, now_ms: int) -> None:
        is_last = record.count >= self.limits.delivery_count_limit
        state = self.given_up if is_last else AVAILABLE
        self.settle(record, state, now_ms, DeliveryEnd.LOCK_ENDED)

    def settle(self, record: Record, state: RecordState, now_ms: int, end: DeliveryEnd) -> None:
        record.vain = (end, record.holder, now_ms)
        record.state, record.holder, record.lock_until_ms, record.write = state, "", 0, -1
        record.due_ms = 0
        if state is AVAILABLE and self.limits.backoff_ms:
            delay_ms = self.limits.backoff_ms * 2 ** (record.count - 1)
            record.due_ms = now_ms + min(delay_ms, self.limits.backoff_max_ms)

    def advance(self, now_ms: int) -> None:
        for record in self.records.values():
            if record.state is AVAILABLE and record.due_ms <= now_ms:
                record.due_ms = 0
        for record in self.records.values():
            is_over = record.state is ACQUIRED and record.lock_until_ms <= now_ms
            if is_over and record.write < 0:
                self.end_delivery(record, now_ms)
        self.move_up()


class Pair:
    """The machine and its twin, which must agree after each step."""

    def __init__(self, limits: Limits) -> None:
        self.machine = SharePartition(0, (), limits)
        self.twin = Twin(limits)
        self.now_ms = 1
        self.open_writes: list[int] = []
        self.acknowledged: set[int] = set()
        self.first: int | None = None  # of the window, and since when
        self.first_since_ms = NO_TIME

    def check(self) -> None:
        machine, twin = self.machine, self.twin
        assert (machine.start_offset, machine.end_offset) == (twin.start, twin.end)
        shown: dict[int, Record] = {}
        for each in machine.ranges():
            for offset in range(each.first, each.last + 1):
                count = 0 if each.state.is_final else each.count
                shown[offset] = Record(
                    each.state, count, each.holder, each.lock_until_ms, each.due_ms, each.write
                )
        expected = {
            offset: Record(
                record.state,
                0 if record.state.is_final else record.count,
                record.holder,
                record.lock_until_ms,
                record.due_ms,
                record.write,
            )
            for offset, record in twin.records.items()
        }
        assert shown == expected
        assert list(shown) == list(range(twin.start, twin.end))
        done = sum(record.state.is_final for record in twin.records.values())
        assert machine.done_count == done
        archiving = sum(record.state.is_archiving for record in twin.records.values())
        assert machine.archiving_count == archiving
        assert machine.complete_count == done + archiving
        assert machine.fetch_offset() == twin.fetch_offset()
        # A lock does not end while the decision about its record is being written.
        locked = [r for r in twin.records.values() if r.state is ACQUIRED and r.write < 0]
        waits = [r.lock_until_ms for r in locked]
        waits += [r.due_ms for r in twin.records.values() if r.state is AVAILABLE and r.due_ms]
        if waits:
            assert 0 <= machine.next_deadline_ms <= min(waits)
        self.check_history()

    def check_history(self) -> None:
        """What is shown to administrators: since when, and how the last delivery ended."""
        machine, twin = self.machine, self.twin
        first = twin.start if twin.records else None
        if first != self.first:
            self.first, self.first_since_ms = first, NO_TIME if first is None else self.now_ms
        assert machine.start_since_ms == self.first_since_ms
        for each in machine.ranges():
            if each.state.is_final:
                continue
            for offset in range(each.first, each.last + 1):
                record = twin.records[offset]
                if each.holder:
                    assert each.acquired_ms == record.acquired_ms
                if each.vain is not None and offset <= each.vain.last:
                    assert each.vain[:3] == record.vain

    # ------------------------------------------------------------------------------ steps

    def acquire(
        self, member: str, sizes: Sequence[tuple[int, int, bool]], max_records: int, is_strict: bool
    ) -> None:
        offset = self.machine.fetch_offset()
        if offset is None:
            return
        read: list[ReadBatch] = []
        at = offset
        for gap, size, deliverable in sizes:
            read.append(ReadBatch(at + gap, at + gap + size - 1, deliverable))
            at += gap + size
        twin, limits = self.twin, self.twin.limits
        got = self.machine.acquire(
            member, offset, read, max_records, self.now_ms, is_strict=is_strict
        )
        offsets = [o for each in got for o in range(each.first, each.last + 1)]
        expected = twin.deliverable(offset, read, max_records, is_strict=is_strict)
        suspects = [o for o in expected if twin.records[o].count >= limits.suspect_count]
        if not suspects:
            assert offsets == expected
        else:
            self.check_suspects(offsets, expected, suspects)
        for each in got:
            for o in range(each.first, each.last + 1):
                record = twin.records[o]
                assert o not in self.acknowledged
                assert record.is_deliverable
                record.state, record.count, record.holder = ACQUIRED, record.count + 1, member
                record.lock_until_ms = self.now_ms + limits.record_lock_duration_ms
                record.acquired_ms = self.now_ms
                assert record.count == each.delivery_count
        twin.move_up()

    def check_suspects(self, offsets: list[int], expected: list[int], suspects: list[int]) -> None:
        twin, limits = self.twin, self.twin.limits
        assert offsets
        assert set(offsets) <= set(expected)
        assert offsets == sorted(offsets)
        taken = [o for o in offsets if o in suspects]
        if expected[0] not in suspects:
            assert not taken
            return
        counts = {twin.records[o].count for o in offsets}
        assert len(counts) == 1
        if counts.pop() >= limits.delivery_count_limit - 1:
            assert len(offsets) == 1

    def acknowledge(
        self, member: str, at: int, count: int, types: list[AcknowledgeType], each_its_own: bool
    ) -> None:
        """Of records that a member has, most of the time."""
        held = [
            offset
            for offset, record in self.twin.records.items()
            if record.state is ACQUIRED and record.holder == member
        ]
        if not held:
            return
        at %= len(held)
        chosen = held[at : at + count]
        if each_its_own:
            self.tell(
                member,
                [
                    AcknowledgementBatch(offset, offset, [types[index % len(types)]])
                    for index, offset in enumerate(chosen)
                ],
            )
        elif chosen[-1] - chosen[0] == len(chosen) - 1:
            full = [types[index % len(types)] for index in range(len(chosen))]
            self.tell(member, [AcknowledgementBatch(chosen[0], chosen[-1], full)])

    def acknowledge_any(
        self, member: str, at: int, count: int, types: list[AcknowledgeType]
    ) -> None:
        """Of any records, which may be of others, or done, or before or behind the window."""
        first = max(self.twin.start + at, 0)
        full = [types[index % len(types)] for index in range(count)]
        self.tell(member, [AcknowledgementBatch(first, first + count - 1, full)])

    def tell(self, member: str, batches: list[AcknowledgementBatch]) -> None:
        twin = self.twin
        runs = {
            first + index: kind
            for first, last, types in batches
            for index, kind in enumerate(
                types if len(types) > 1 else list(types) * (last - first + 1)
            )
        }
        decided = {o: kind for o, kind in runs.items() if o >= twin.start}
        allowed = all(
            o in twin.records
            and twin.records[o].state is ACQUIRED
            and twin.records[o].holder == member
            and twin.records[o].write < 0
            for o in decided
        )
        if not allowed:
            with pytest.raises(ApiError, match="has no record at offset"):
                self.machine.acknowledge(member, batches, self.now_ms)
            return
        write = self.machine.acknowledge(member, batches, self.now_ms)
        for o, kind in decided.items():
            if kind is AcknowledgeType.RENEW:
                locked_until_ms = self.now_ms + twin.limits.record_lock_duration_ms
                twin.records[o].lock_until_ms = locked_until_ms
        decided = {o: kind for o, kind in decided.items() if kind is not AcknowledgeType.RENEW}
        assert (write is not None) == bool(decided)
        if write is None:
            return
        outcomes = {o: self.outcome(o, kind) for o, kind in decided.items()}
        assert states_of(write) == {o: (s, twin.records[o].count) for o, s in outcomes.items()}
        for o in decided:
            twin.records[o].write = write.number
        twin.decisions[write.number] = outcomes
        self.open_writes.append(write.number)

    def outcome(self, offset: int, kind: AcknowledgeType) -> RecordState:
        twin = self.twin
        if kind is AcknowledgeType.ACCEPT:
            return ACKNOWLEDGED
        if kind is AcknowledgeType.REJECT and twin.limits.has_dead_letters:
            return REJECTED
        if kind is not AcknowledgeType.RELEASE:
            return ARCHIVED
        limit = twin.limits.delivery_count_limit
        return AVAILABLE if twin.records[offset].count < limit else twin.given_up

    def archive(self, most: int) -> None:
        """The dead letters of some records are written."""
        twin = self.twin
        due = self.machine.letters_due(most)
        archiving = [o for o, r in twin.records.items() if r.state.is_archiving and r.write < 0]
        offsets = [o for each in due for o in range(each.first, each.last + 1)]
        assert offsets == sorted(archiving)[:most]
        for each in due:
            for o in range(each.first, each.last + 1):
                assert (each.state, each.delivery_count) == (
                    twin.records[o].state,
                    twin.records[o].count,
                )
        write = self.machine.archive([(each.first, each.last) for each in due], None)
        assert states_of(write) == {o: (ARCHIVED, twin.records[o].count) for o in offsets}
        for o in offsets:
            twin.records[o].write = write.number
        twin.decisions[write.number] = dict.fromkeys(offsets, ARCHIVED)
        self.open_writes.append(write.number)

    def end_write(self, at: int, is_persisted: bool) -> None:
        if not self.open_writes:
            return
        number = self.open_writes.pop(at % len(self.open_writes))
        outcomes = self.twin.decisions.pop(number)
        if is_persisted:
            self.machine.written(number, self.now_ms)
        else:
            self.machine.failed(number, self.now_ms)
        for offset, state in outcomes.items():
            record = self.twin.records.get(offset)
            if record is None:
                continue
            record.write = -1
            if is_persisted:
                self.twin.settle(record, state, self.now_ms, DeliveryEnd.RELEASED)
                if state is ACKNOWLEDGED:
                    self.acknowledged.add(offset)
            elif record.state is ACQUIRED and record.lock_until_ms <= self.now_ms:
                self.twin.end_delivery(record, self.now_ms)
        self.twin.move_up()

    def wait(self, time_ms: int) -> None:
        self.now_ms += time_ms
        self.machine.advance(self.now_ms)
        self.twin.advance(self.now_ms)

    def end_session(self, member: str) -> None:
        write = self.machine.end_session(member, self.now_ms)
        ended: dict[int, tuple[RecordState, int]] = {}
        for offset, record in self.twin.records.items():
            if record.state is ACQUIRED and record.holder == member and record.write < 0:
                record.vain = (DeliveryEnd.SESSION_ENDED, member, self.now_ms)
                record.state, record.holder, record.lock_until_ms = AVAILABLE, "", 0
                record.count -= 1
                ended[offset] = (AVAILABLE, record.count)
        assert (states_of(write) if write is not None else {}) == ended

    def log_begins_at(self, more: int) -> None:
        offset = self.twin.start + more
        write = self.machine.log_begins_at(offset, self.now_ms)
        assert (write is not None) == (more > 0)
        if more <= 0:
            return
        for each in [o for o in self.twin.records if o < offset]:
            del self.twin.records[each]
        self.twin.start = offset
        self.twin.move_up()


def states_of(write: StateWrite) -> dict[int, tuple[RecordState, int]]:
    return {
        offset: (each.state, each.delivery_count)
        for each in write.batches
        for offset in range(each.first, each.last + 1)
    }


MEMBERS = st.sampled_from(["m1", "m2"])
TYPES = st.sampled_from(list(AcknowledgeType))


TYPES_USED = st.lists(TYPES, min_size=1, max_size=4)

ACQUIRE = st.tuples(
    st.just("acquire"),
    MEMBERS,
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 5), st.sampled_from([True, True, True, False])),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 8),
    st.booleans(),
)
# Of the records of one member: from which on, how many, with which types; a batch for each or not.
ACKNOWLEDGE = st.tuples(
    st.just("acknowledge"), MEMBERS, st.integers(0, 7), st.integers(1, 6), TYPES_USED, st.booleans()
)
WRONG = st.tuples(
    st.just("acknowledge_any"), MEMBERS, st.integers(-2, 9), st.integers(1, 4), TYPES_USED
)
STEPS = st.one_of(
    ACQUIRE,
    ACQUIRE,
    ACKNOWLEDGE,
    ACKNOWLEDGE,
    WRONG,
    st.tuples(st.just("end_write"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("end_write"), st.integers(0, 3), st.just(True)),
    st.tuples(st.just("wait"), st.sampled_from([1, 20, 30, 40, 60, 100])),
    st.tuples(st.just("end_session"), MEMBERS),
    st.tuples(st.just("log_begins_at"), st.integers(-1, 4)),
    st.tuples(st.just("archive"), st.integers(1, 5)),
)
ALL_LIMITS = st.sampled_from(
    [LIMITS, AT_ONCE, AT_ONCE._replace(delivery_count_limit=5), LETTERS, LETTERS]
)


@settings(max_examples=1000, deadline=None)
@given(ALL_LIMITS, st.lists(STEPS, min_size=5, max_size=60))
def test_every_offset_is_what_the_twin_says(limits: Limits, steps: list[Any]) -> None:
    pair = Pair(limits)
    for name, *arguments in steps:
        getattr(pair, name)(*arguments)
        pair.check()


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([LIMITS, LETTERS]), st.lists(STEPS, max_size=30))
def test_what_was_persisted_comes_back_with_the_next_leader(
    limits: Limits, steps: list[Any]
) -> None:
    """Every record of the window is as the writes left it, and acquired ones are available."""
    machine = SharePartition(0, (), limits)
    persisted: dict[int, tuple[RecordState, int]] = {}
    start, now_ms = 0, 1

    def persist(write: StateWrite | None) -> None:
        nonlocal start
        if write is not None:
            persisted.update(states_of(write))
            start = max(start, write.start_offset)
            machine.written(write.number, now_ms)

    for name, *arguments in steps:
        if name == "acquire":
            offset = machine.fetch_offset()
            if offset is not None:
                size = arguments[2]
                machine.acquire(
                    arguments[0], offset, [ReadBatch(offset, offset + size - 1)], size, now_ms
                )
        elif name == "acknowledge":
            held = next((each for each in machine.ranges() if each.state is ACQUIRED), None)
            if held is not None:
                kind = arguments[3][0]
                batch = AcknowledgementBatch(held.first, held.last, [kind])
                persist(machine.acknowledge(held.holder, [batch], now_ms))
        elif name == "wait":
            now_ms += arguments[0]
            persist(machine.advance(now_ms))
        elif name == "end_session":
            persist(machine.end_session(arguments[0], now_ms))
        elif name == "archive":
            due = machine.letters_due(arguments[0])
            persist(machine.archive([(each.first, each.last) for each in due], None))
    batches = [
        StateBatch(offset, offset, *state)
        for offset, state in sorted(persisted.items())
        if offset >= start
    ]
    next_leader = SharePartition(start, batches, limits)
    assert next_leader.start_offset == machine.start_offset
    after = {o: each for each in next_leader.ranges() for o in range(each.first, each.last + 1)}
    for each in machine.ranges():
        for offset in range(each.first, each.last + 1):
            found = after.get(offset)
            if each.state is ACQUIRED or found is None:
                assert found is None or found.state is AVAILABLE
                assert not each.state.is_final
            else:
                assert found.state is each.state
