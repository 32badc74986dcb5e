"""Random histories of a partition machine beside a twin that computes everything from scratch."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.partition.effects import (
    Acknowledged,
    Advanced,
    BrokerStatus,
    Effect,
    IsrAnswer,
    LogPosition,
    Proposed,
    Refused,
)
from broker.partition.machine import PartitionMachine
from metadata.partitions import PartitionState
from stele.errors import ApiError, ErrorCode
from tests.support.broker import MachineBench, state

REPLICAS = (1, 2, 3)
FOLLOWERS = (2, 3)


@dataclass
class Twin:
    """What must be true, computed in the simplest way: from whole histories, without increments."""

    isr: set[int]
    pending: set[int] = field(default_factory=set)  # members of a proposal of unknown outcome
    ends: dict[int, int] = field(default_factory=dict)  # durable ends, the leader's included
    starts: dict[int, int] = field(default_factory=lambda: {1: 0})  # of logs, likewise
    eligible: set[int] = field(default_factory=lambda: set(FOLLOWERS))
    waiting: dict[str, int] = field(default_factory=dict)

    def ceiling(self) -> int:
        """The high watermark may not be above this offset."""
        return min(self.ends.get(member, -1) for member in self.isr | self.pending)


class PartitionLife(RuleBasedStateMachine):
    """The events of a leader: appends, syncs, fetches, proposals, answers, time, metadata."""

    @initialize(
        isr=st.sets(st.sampled_from(FOLLOWERS)), min_insync=st.integers(1, 3), end=st.integers(0, 3)
    )
    def begin(self, isr: set[int], min_insync: int, end: int) -> None:
        self.bench = MachineBench(min_insync=min_insync, end=end)
        self.partition_epoch = 10
        self.leader_epoch = 5
        self.twin = Twin({1, *isr}, ends={1: end})
        self.tokens = 0
        self.answered: dict[str, str] = {}
        self.highest = 0
        self.in_flight: Proposed | None = None
        self.observe(self.bench.update(self.metadata()))

    def metadata(self) -> PartitionState:
        return state(
            epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            isr=tuple(sorted(self.twin.isr)),
        )

    # ------------------------------------------------------------------------ bookkeeping

    def observe(self, effects: list[Effect]) -> None:
        machine, twin = self.bench.machine, self.twin
        for effect in effects:
            if isinstance(effect, Proposed):
                assert not twin.pending, "a proposal while another is under way"
                members = {member.broker_id for member in effect.isr}
                self.check_proposal(effect, members)
                twin.pending = members
                self.in_flight = effect
        for effect in effects:
            if isinstance(effect, Advanced):
                assert effect.high_watermark <= twin.ceiling()
                assert len(twin.isr) >= machine.min_insync
            elif isinstance(effect, Acknowledged):
                for token in effect.tokens:
                    assert isinstance(token, str)
                    assert twin.waiting.pop(token) <= machine.high_watermark
                    self.answered[token] = "acknowledged"
            elif isinstance(effect, Refused):
                for token in effect.tokens:
                    assert isinstance(token, str)
                    twin.waiting.pop(token)
                    assert effect.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
                    self.answered[token] = "refused"

    def check_proposal(self, proposed: Proposed, members: set[int]) -> None:
        twin, machine = self.twin, self.bench.machine
        assert (proposed.leader_epoch, proposed.partition_epoch) == (
            self.leader_epoch,
            self.partition_epoch,
        )
        assert 1 in members
        for joining in members - twin.isr:
            assert joining in twin.eligible
            assert twin.starts[joining] >= twin.starts[1]
            assert twin.ends[joining] >= max(machine.high_watermark, machine.epoch_start_offset)

    @invariant()
    def the_high_watermark_is_right(self) -> None:
        machine, twin = self.bench.machine, self.twin
        assert machine.high_watermark >= self.highest
        self.highest = machine.high_watermark
        assert machine.high_watermark <= machine.log.end_offset
        assert machine.maximal_isr == twin.isr | twin.pending
        if not machine.is_under_min_isr:
            waited_for = [
                twin.ends[each]
                for each in FOLLOWERS
                if each in twin.ends and each in twin.eligible and each not in machine.maximal_isr
            ]
            # It is as high as the maximal ISR allows, except for replicas that are about to join.
            floor = min([twin.ceiling(), *waited_for])
            assert machine.high_watermark >= floor

    @invariant()
    def readers_are_shown_what_is_theirs(self) -> None:
        machine, start = self.bench.machine, self.twin.starts[1]
        end = self.bench.log.end_offset
        assert machine.start_offset == start <= machine.high_watermark
        for offset in range(start - 1, end + 2):
            shown = seen_at(machine, offset), seen_at(machine, offset, is_follower=True)
            if start <= offset <= end:
                assert shown == (machine.high_watermark, end)
            else:
                assert shown == (None, None)

    @invariant()
    def the_low_watermark_is_that_of_all_who_may_lead(self) -> None:
        twin = self.twin
        fetched = {each for each in twin.ends if each in twin.eligible}
        may_lead = {1} | twin.isr | twin.pending | fetched
        assert self.bench.machine.low_watermark == min(
            twin.starts.get(each, 0) for each in may_lead
        )

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        machine = self.bench.machine
        if machine.is_under_min_isr:
            assert not self.twin.waiting
        assert all(offset > machine.high_watermark for offset in self.twin.waiting.values())

    # ------------------------------------------------------------------------------ events

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        self.observe(self.bench.append(count))

    @rule(back=st.integers(0, 3))
    def sync(self, back: int) -> None:
        upto = max(self.bench.log.durable_offset, self.bench.log.end_offset - back)
        self.twin.ends[1] = upto
        self.observe(self.bench.sync(upto))

    @rule(broker_id=st.sampled_from(FOLLOWERS), ahead=st.integers(-1, 4), behind=st.integers(0, 1))
    def fetch(self, broker_id: int, ahead: int, behind: int) -> None:
        """Fetch mostly forward, sometimes back, sometimes beyond the end. The replica may not have
        taken over the leader's start yet."""
        offset = max(0, self.twin.ends.get(broker_id, 0) + ahead)
        start = max(0, self.twin.starts[1] - behind)
        if offset <= self.bench.log.end_offset:
            self.twin.ends[broker_id] = offset
            self.twin.starts[broker_id] = start
        self.observe(self.bench.fetch(broker_id, offset, start=start))

    @rule(share=st.floats(0, 1))
    def retention_or_a_request_deletes(self, share: float) -> None:
        start, committed = self.twin.starts[1], self.bench.machine.high_watermark
        self.twin.starts[1] = start + round(share * (committed - start))
        self.bench.begin_at(self.twin.starts[1])

    @rule()
    def produce_waits(self) -> None:
        if self.bench.machine.is_under_min_isr:
            return  # refused before the append
        self.tokens += 1
        token = f"t{self.tokens}"
        self.twin.waiting[token] = self.bench.log.end_offset
        self.observe(self.bench.wait(token))

    @rule(elapsed_ms=st.sampled_from([1.0, 400.0, 600.0, 16_000.0, 40_000.0]))
    def tick(self, elapsed_ms: float) -> None:
        self.observe(self.bench.tick(elapsed_ms))

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def the_controller_takes_it(self) -> None:
        proposed = self.in_flight
        assert proposed is not None
        self.in_flight = None
        if proposed.partition_epoch != self.partition_epoch:
            return self.the_controller_refuses(proposed, ErrorCode.INVALID_UPDATE_VERSION)
        self.partition_epoch += 1
        answer = IsrAnswer(ErrorCode.NONE, self.partition_epoch)
        assert self.bench.machine.answered(proposed, answer, self.bench.now_ms) == []
        self.twin.isr = {member.broker_id for member in proposed.isr}
        self.twin.pending = set()
        self.observe(self.bench.update(self.metadata()))
        return None

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def the_controller_finds_it_ineligible(self) -> None:
        proposed = self.in_flight
        assert proposed is not None
        self.in_flight = None
        if proposed.partition_epoch == self.partition_epoch:
            self.twin.pending = set()
        self.the_controller_refuses(proposed, ErrorCode.INELIGIBLE_REPLICA)

    def the_controller_refuses(self, proposed: Proposed, error: ErrorCode) -> None:
        answer = IsrAnswer(error)
        self.observe(self.bench.machine.answered(proposed, answer, self.bench.now_ms))

    @rule(broker_id=st.sampled_from(FOLLOWERS), eligible=st.booleans())
    def a_broker_is_fenced_or_not(self, broker_id: int, eligible: bool) -> None:
        self.bench.eligible[broker_id] = eligible
        (self.twin.eligible.add if eligible else self.twin.eligible.discard)(broker_id)
        status = BrokerStatus(self.bench.epochs[broker_id], eligible)
        self.observe(self.bench.machine.broker_changed(broker_id, status, self.bench.now_ms))

    @rule(leaving=st.sampled_from(FOLLOWERS))
    def the_controller_removes_one(self, leaving: int) -> None:
        """The controller fences one. The metadata change, whatever is under way."""
        if leaving not in self.twin.isr:
            return
        self.partition_epoch += 1
        self.twin.isr = self.twin.isr - {leaving}
        self.twin.pending = set()
        self.observe(self.bench.update(self.metadata()))

    @rule()
    def elected_again(self) -> None:
        self.partition_epoch += 1
        self.leader_epoch += 1
        self.twin.pending = set()
        self.twin.ends = {1: self.twin.ends[1]}
        self.twin.starts = {1: self.twin.starts[1]}
        self.observe(self.bench.update(self.metadata()))

    @rule(min_insync=st.integers(1, 3))
    def configure(self, min_insync: int) -> None:
        self.observe(self.bench.configure(min_insync))


class FollowerLife(RuleBasedStateMachine):
    """What a follower knows to be committed, while its log changes in any way.

    The twin remembers every single offset that a leader has named as committed.
    """

    @initialize(checkpointed=st.integers(0, 6), end=st.integers(0, 4))
    def begin(self, checkpointed: int, end: int) -> None:
        self.bench = MachineBench(end=end, high_watermark=checkpointed)
        self.committed = set(range(min(checkpointed, end)))
        self.epoch = 5
        self.bench.update(state(leader=2, epoch=self.epoch, partition_epoch=self.epoch))

    @property
    def log(self) -> LogPosition:
        return self.bench.log

    @invariant()
    def the_high_watermark_is_what_was_heard_of(self) -> None:
        machine = self.bench.machine
        assert machine.high_watermark == len(self.committed)
        assert self.committed == set(range(machine.high_watermark))
        assert (machine.start_offset, machine.log) == (self.log.start_offset, self.log)
        assert self.log.start_offset <= machine.high_watermark <= self.log.end_offset

    @invariant()
    def consumers_see_nothing_that_is_not_committed(self) -> None:
        for offset in range(self.log.start_offset - 1, self.log.end_offset + 2):
            if self.log.start_offset <= offset <= self.log.end_offset:
                assert seen_at(self.bench.machine, offset) == len(self.committed)
            else:
                assert seen_at(self.bench.machine, offset) is None

    @rule(count=st.integers(0, 3), heard=st.integers(0, 20), later=st.integers(0, 2))
    def copy(self, count: int, heard: int, later: int) -> None:
        """The leader's answer: records, its high watermark, and its log start offset."""
        end = self.log.end_offset + count
        start = min(self.log.start_offset + later, end)
        self.bench.log = self.log._replace(start_offset=start, end_offset=end)
        self.committed.update(range(max(start, min(heard, end))))
        before = self.bench.machine.high_watermark
        is_news = self.bench.machine.copied(self.log, heard)
        assert is_news == (len(self.committed) > before)

    @rule()
    def sync(self) -> None:
        self.bench.sync()

    @rule(share=st.floats(0, 1))
    def retention_deletes(self, share: float) -> None:
        start = self.log.start_offset
        self.bench.begin_at(start + round(share * (len(self.committed) - start)))

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        """Truncate. After an unclean election also below what was committed."""
        start = self.log.start_offset
        end = start + round(share * (self.log.end_offset - start))
        self.bench.log = LogPosition(start, end, end, self.log.generation + 1)
        self.committed.intersection_update(range(end))
        self.bench.machine.truncated(self.log)

    @rule(offset=st.integers(0, 12))
    def begin_anew(self, offset: int) -> None:
        """Begin again at the leader's start: everything before it is committed."""
        self.bench.log = LogPosition(offset, offset, offset, self.log.generation + 1)
        self.committed = set(range(offset))
        self.bench.machine.truncated(self.log)

    @rule(leads=st.booleans())
    def elected(self, leads: bool) -> None:
        """A leader shows nobody records that it could still lose."""
        self.epoch += 1
        leader = 1 if leads else 2
        self.bench.update(
            state(leader=leader, epoch=self.epoch, partition_epoch=self.epoch, isr=(1, 2))
        )
        if leads:
            durable = max(self.log.durable_offset, self.log.start_offset)
            self.committed.intersection_update(range(durable))
            self.bench.update(
                state(leader=2, epoch=self.epoch + 1, partition_epoch=self.epoch + 1, isr=(1, 2))
            )
            self.epoch += 1


def seen_at(machine: PartitionMachine, offset: int, *, is_follower: bool = False) -> int | None:
    """The end of what a reader may see; None if it sees nothing."""
    try:
        return machine.readable_end(offset, is_follower=is_follower)
    except ApiError:
        return None


TestPartitionLife = PartitionLife.TestCase
TestPartitionLife.settings = settings(max_examples=100, stateful_step_count=40)
TestFollowerLife = FollowerLife.TestCase
TestFollowerLife.settings = settings(max_examples=100, stateful_step_count=30)
