"""The last stable offset, compared with a twin that looks through all transactions each time."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.partition.effects import NEVER, LogPosition
from tests.support.broker import MachineBench, state

PRODUCERS = st.integers(0, 3)


class StableMachine(RuleBasedStateMachine):
    """A leader with two followers, whose fetches the rules choose, or a follower."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = MachineBench(min_insync=1)
        self.epoch = 1
        self.bench.update(state(epoch=self.epoch, partition_epoch=self.epoch))
        self.begun: dict[int, int] = {}  # first offset by producer
        self.ended: list[tuple[int, int, int]] = []  # producer, first offset, offset of the marker
        self.seen: tuple[int, int] = (self.epoch, 0)  # leader epoch, last stable offset

    @property
    def machine(self):  # type: ignore[no-untyped-def]
        return self.bench.machine

    @property
    def end(self) -> int:
        return self.bench.log.end_offset

    @rule(producer=PRODUCERS)
    def append_records(self, producer: int) -> None:
        self.begun.setdefault(producer, self.end)
        self.grow()

    @rule(producer=PRODUCERS)
    def append_marker(self, producer: int) -> None:
        if producer in self.begun:
            first = self.begun.pop(producer)
            self.ended.append((producer, first, self.end))
            self.machine.transaction_ended(first, self.end)
        self.grow()

    @rule(count=st.integers(1, 3))
    def append_others(self, count: int) -> None:
        self.grow(count)

    def grow(self, count: int = 1) -> None:
        self.tell_first()
        if self.machine.is_leader:
            self.bench.append(count)
        else:
            self.bench.log = self.bench.log._replace(end_offset=self.end + count)
            self.machine.copied(self.bench.log, 0)

    def tell_first(self) -> None:
        first = min(self.begun.values(), default=NEVER)
        self.bench.log = self.bench.log._replace(first_open_offset=first)

    @rule(share=st.floats(0, 1))
    def commit(self, share: float) -> None:
        known = self.machine.high_watermark
        offset = known + round(share * (self.end - known))
        if self.machine.is_leader:
            self.bench.sync(max(offset, self.bench.log.durable_offset))
            for follower in (2, 3):
                self.bench.fetch(follower, offset)
        else:
            self.machine.copied(self.bench.log, offset)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        start = self.bench.log.start_offset
        self.bench.begin_at(start + round(share * (self.machine.high_watermark - start)))

    @rule(leads=st.booleans())
    def change_leader(self, leads: bool) -> None:
        self.epoch += 1
        self.bench.sync()  # a leader begins with what it has on disk
        self.bench.update(
            state(leader=1 if leads else 2, epoch=self.epoch, partition_epoch=self.epoch)
        )

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """A follower, never below the high watermark."""
        if self.machine.is_leader:
            return
        known = self.machine.high_watermark
        end = known + round(share * (self.end - known))
        reopened = [(first, p) for p, first, marker in self.ended if marker >= end > first]
        self.ended = [each for each in self.ended if each[2] < end]
        self.begun = {p: first for p, first in self.begun.items() if first < end}
        for first, producer in sorted(reopened, reverse=True):
            self.begun[producer] = first
        log = self.bench.log
        self.bench.log = LogPosition(log.start_offset, end, end, log.generation + 1)
        self.tell_first()
        self.machine.truncated(self.bench.log)

    @invariant()
    def is_where_the_first_undecided_transaction_begins(self) -> None:
        high_watermark = self.machine.high_watermark
        undecided = [*self.begun.values()]
        undecided += [first for _, first, marker in self.ended if marker >= high_watermark]
        stable = min([*undecided, high_watermark])
        found = self.machine.last_stable_offset
        assert found == max(stable, self.bench.log.start_offset)
        assert self.machine.consumable_end(read_committed=True) == found
        assert self.machine.consumable_end(read_committed=False) == high_watermark
        assert self.machine.readable_end(high_watermark, read_committed=True) == found
        assert self.machine.readable_end(high_watermark) == high_watermark
        for read_committed in (False, True):
            end = self.machine.readable_end(
                high_watermark, is_follower=True, read_committed=read_committed
            )
            assert end == self.bench.log.end_offset

    @invariant()
    def never_goes_back_in_an_epoch(self) -> None:
        epoch, before = self.seen
        found = self.machine.last_stable_offset
        if epoch == self.epoch:
            assert found >= before
        self.seen = self.epoch, found


StableMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestLastStableOffset = StableMachine.TestCase
