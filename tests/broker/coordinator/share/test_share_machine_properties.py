"""Random lives of a share coordinator beside a twin of one entry for each offset."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.coordinator.share.types import (
    ForgetRequest,
    InitializeRequest,
    ReadRequest,
    ShareState,
    StateAnswer,
    StateKey,
    StateRequest,
    SummaryRequest,
    TopicIdsDeleted,
    WriteRequest,
)
from broker.share.values import RecordState, StateBatch
from stele.errors import ErrorCode
from tests.support.coordinators import Heard
from tests.support.share_states import StateBench, T, U

KEYS = (StateKey("g", T, 0), StateKey("g", T, 1), StateKey("h", T, 0), StateKey("g", U, 0))
STATES = tuple(each for each in RecordState if each is not RecordState.ACQUIRED)


@dataclass
class Twin:
    """What the leaders of one share partition were told to be persisted."""

    state_epoch: int
    leader_epoch: int = -1
    start: int = -1
    offsets: dict[int, tuple[RecordState, int]] = field(default_factory=dict)

    def write(self, start: int, batches: tuple[StateBatch, ...]) -> None:
        for batch in batches:
            for offset in range(batch.first, batch.last + 1):
                new = batch.state, batch.delivery_count
                old = self.offsets.get(offset, new)
                self.offsets[offset] = max(old, new, key=_rank)
        self.start = max(self.start, start)
        self.offsets = {each: what for each, what in self.offsets.items() if each >= self.start}


def _rank(what: tuple[RecordState, int]) -> tuple[bool, int, RecordState]:
    state, delivery_count = what
    return state.is_final, delivery_count, state


@st.composite
def batches(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 12))
    last = draw(st.integers(first, first + 5))
    return StateBatch(first, last, draw(st.sampled_from(STATES)), draw(st.integers(0, 3)))


class ShareCoordinatorLife(RuleBasedStateMachine):
    """Leaders and group coordinators of four share partitions, late ones among them. The share
    coordinator changes, its log refuses records and is cut, topics are deleted."""

    keys = st.sampled_from(KEYS)

    @initialize()
    def begin(self) -> None:
        self.bench = StateBench()
        self.twins: dict[StateKey, Twin] = {}

    def ask(self, request: StateRequest) -> StateAnswer | None:
        """None: it was not answered, or the log refused it."""
        heard = self.bench.send(request)
        assert len(heard.told) == 1
        (answer,) = heard.told
        return answer if isinstance(answer, StateAnswer) else None

    # ------------------------------------------------------------------------ requests

    @rule(key=keys, state_epoch=st.integers(0, 5), start=st.sampled_from((-1, 0, 4)))
    def initialize_state(self, key: StateKey, state_epoch: int, start: int) -> None:
        answer = self.ask(InitializeRequest(key, state_epoch, start))
        if answer is None:
            return
        twin = self.twins.get(key)
        if key.topic_id not in self.bench.counts:
            assert answer.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif twin is None:
            assert answer.error is ErrorCode.NONE
            self.twins[key] = Twin(state_epoch, start=start)
        elif start == -1 or state_epoch == twin.state_epoch:
            assert answer.error is ErrorCode.NONE
        elif state_epoch < twin.state_epoch:
            assert answer.error is ErrorCode.FENCED_STATE_EPOCH
        else:
            assert answer.error is ErrorCode.NONE
            self.twins[key] = Twin(state_epoch, twin.leader_epoch, start)

    @rule(key=keys, leader_epoch=st.integers(0, 6))
    def read(self, key: StateKey, leader_epoch: int) -> None:
        answer = self.ask(ReadRequest(key, leader_epoch))
        twin = self.twins.get(key)
        if answer is None:
            return
        if twin is None or key.topic_id not in self.bench.counts:
            assert answer.error is not ErrorCode.NONE
        elif leader_epoch < twin.leader_epoch:
            assert answer.error is ErrorCode.FENCED_LEADER_EPOCH
        else:
            twin.leader_epoch = leader_epoch
            assert answer.state is not None
            self.check(answer.state, twin)

    @rule(
        key=keys,
        epochs=st.tuples(st.integers(0, 5), st.integers(0, 6)),
        is_right=st.booleans(),
        start=st.integers(-1, 8),
        written=st.lists(batches(), max_size=3).map(tuple),
    )
    def write(
        self,
        key: StateKey,
        epochs: tuple[int, int],
        is_right: bool,
        start: int,
        written: tuple[StateBatch, ...],
    ) -> None:
        twin = self.twins.get(key)
        state_epoch, leader_epoch = epochs
        if twin is not None and is_right:
            state_epoch, leader_epoch = twin.state_epoch, max(twin.leader_epoch, 0)
        answer = self.ask(WriteRequest(key, state_epoch, leader_epoch, start, -1, written))
        if answer is None:
            return
        if twin is None or key.topic_id not in self.bench.counts:
            assert answer.error is not ErrorCode.NONE
        elif leader_epoch < twin.leader_epoch:
            assert answer.error is ErrorCode.FENCED_LEADER_EPOCH
        elif state_epoch != twin.state_epoch:
            assert answer.error is ErrorCode.FENCED_STATE_EPOCH
        else:
            assert answer.error is ErrorCode.NONE
            twin.leader_epoch = leader_epoch
            twin.write(start, written)

    @rule(key=keys)
    def forget(self, key: StateKey) -> None:
        if self.ask(ForgetRequest(key)) is not None:
            self.twins.pop(key, None)

    # ------------------------------------------------------------------------ the world

    @rule()
    def fail_over(self) -> None:
        self.bench.reload()

    @rule()
    def cut(self) -> None:
        self.bench.cut()

    @rule()
    def cut_when_due(self) -> None:
        self.bench.cut_when_due()

    @rule(refused=st.booleans())
    def change_disk(self, refused: bool) -> None:
        self.bench.refusal = ErrorCode.NOT_ENOUGH_REPLICAS if refused else ErrorCode.NONE

    @rule()
    def delete_topic(self) -> None:
        if self.bench.counts.pop(U, None) is not None:
            self.bench.machine.note(TopicIdsDeleted((U,)), self.bench.now)

    @rule()
    def pass_time(self) -> None:
        self.bench.pass_time(10)
        if self.bench.refusal is ErrorCode.NONE and U not in self.bench.counts:
            self.twins = {key: twin for key, twin in self.twins.items() if key.topic_id != U}
        if self.bench.refusal is ErrorCode.NONE:
            assert len(self.bench.log) - self.bench.machine.needed_from <= 2 * len(KEYS) + 10

    # ------------------------------------------------------------------------ laws

    def check(self, state: ShareState, twin: Twin) -> None:
        assert (state.state_epoch, state.leader_epoch) == (twin.state_epoch, twin.leader_epoch)
        assert state.start_offset == twin.start
        found = {
            offset: (each.state, each.delivery_count)
            for each in state.batches
            for offset in range(each.first, each.last + 1)
        }
        assert found == twin.offsets

    @invariant()
    def the_next_coordinator_knows_the_same(self) -> None:
        """Also from a log that is cut where it may be cut."""
        start, self.bench.start = self.bench.start, self.bench.machine.needed_from
        cut = self.bench.rebuilt()
        self.bench.start = start
        assert cut.count == self.bench.machine.count
        for key, twin in self.twins.items():
            if key.topic_id not in self.bench.counts:
                continue
            for machine in (cut, self.bench.rebuilt(), self.bench.machine):
                request = ReadRequest(key, twin.leader_epoch)
                (reply,) = machine.take(request, Heard(), self.bench.now).replies
                assert reply.answer.state is not None
                self.check(reply.answer.state, twin)

    @invariant()
    def a_summary_fences_nobody(self) -> None:
        for key, twin in self.twins.items():
            if key.topic_id in self.bench.counts:
                length = len(self.bench.log)
                answer = self.ask(SummaryRequest(key))
                assert answer is not None
                assert answer.state is not None
                assert answer.state.leader_epoch == twin.leader_epoch
                assert len(self.bench.log) == length


TestShareCoordinatorLife = ShareCoordinatorLife.TestCase
TestShareCoordinatorLife.settings = settings(max_examples=40, stateful_step_count=40)
