"""A machine that hears only of a session's changed partitions, beside one that hears of every
fetch."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.partition.effects import Effect, Proposed
from broker.partition.progress import Attendance
from stele.errors import ErrorCode
from tests.support.broker import MachineBench, refused, state, taken

FOLLOWERS = (2, 3)
LATER_MS = (1.0, 400.0, 16_000.0, 31_000.0)


class Rest(RuleBasedStateMachine):
    """Followers fetch in sessions. The requests to the twin name every partition every time."""

    @initialize(end=st.integers(0, 3), isr=st.sets(st.sampled_from(FOLLOWERS)))
    def begin(self, end: int, isr: set[int]) -> None:
        self.quiet, self.twin = MachineBench(end=end), MachineBench(end=end)
        self.sessions = {broker_id: Attendance() for broker_id in FOLLOWERS}
        self.ends = dict.fromkeys(FOLLOWERS, 0)
        self.isr = tuple(sorted({1, *isr}))
        self.epochs = 10
        self.skipped = 0
        self.proposed: Proposed | None = None
        self.update()

    def agree(self, ours: list[Effect], theirs: list[Effect]) -> None:
        assert ours == theirs
        for effect in ours:
            if isinstance(effect, Proposed):
                self.proposed = effect

    def update(self) -> None:
        new = state(epoch=5, partition_epoch=self.epochs, isr=self.isr)
        self.agree(self.quiet.update(new), self.twin.update(new))

    @rule(count=st.integers(1, 3), durable=st.booleans())
    def append(self, count: int, durable: bool) -> None:
        self.agree(
            self.quiet.append(count, durable=durable), self.twin.append(count, durable=durable)
        )

    @rule(
        broker_id=st.sampled_from(FOLLOWERS),
        goes_on=st.sampled_from(["whole", "part", "not", "back"]),
    )
    def fetch(self, broker_id: int, goes_on: str) -> None:
        end, at = self.quiet.log.end_offset, self.ends[broker_id]
        at = {"whole": end, "part": min(at + 1, end), "not": at, "back": max(at - 1, 0)}[goes_on]
        is_named = at != self.ends[broker_id]
        self.ends[broker_id] = at
        session, bench = self.sessions[broker_id], self.quiet
        theirs = self.twin.fetch(broker_id, at)
        if bench.machine.rests(broker_id, session) and not is_named:
            self.skipped += 1
            self.agree([], theirs)
        else:
            status = bench.status(broker_id)
            ours = bench.machine.fetched(broker_id, at, status, bench.now_ms, session)
            self.agree(ours, theirs)
        session.last_fetch_ms = bench.now_ms

    @rule(broker_id=st.sampled_from(FOLLOWERS), elapsed_ms=st.sampled_from(LATER_MS))
    def rest(self, broker_id: int, elapsed_ms: float) -> None:
        """A follower that has everything joins the ISR, and asks again later."""
        self.fetch(broker_id, "whole")
        self.the_controller_answers(is_taken=True)
        self.time_passes(elapsed_ms)
        self.fetch(broker_id, "not")

    @rule(broker_id=st.sampled_from(FOLLOWERS))
    def the_session_ends(self, broker_id: int) -> None:
        """The next session begins with all partitions."""
        session, self.sessions[broker_id] = self.sessions[broker_id], Attendance()
        self.quiet.machine.left(broker_id, session)
        session.last_fetch_ms = float("inf")  # what it says no longer counts

    @rule(elapsed_ms=st.sampled_from(LATER_MS))
    def time_passes(self, elapsed_ms: float) -> None:
        self.quiet.now_ms += elapsed_ms
        self.twin.now_ms += elapsed_ms

    @rule()
    def tick(self) -> None:
        """A settled machine is not told the time."""
        theirs = self.twin.tick()
        self.agree([] if self.quiet.machine.is_settled else self.quiet.tick(), theirs)

    @rule(is_taken=st.booleans())
    def the_controller_answers(self, is_taken: bool) -> None:
        proposed, self.proposed = self.proposed, None
        if proposed is None or proposed != self.quiet.machine.proposal:
            return
        if is_taken:
            self.agree(taken(self.quiet, proposed), taken(self.twin, proposed))
            self.isr = self.quiet.machine.state.isr
            self.epochs = self.quiet.machine.state.partition_epoch
        else:
            error = ErrorCode.INELIGIBLE_REPLICA
            self.agree(refused(self.quiet, proposed, error), refused(self.twin, proposed, error))

    @rule(leaving=st.sampled_from(FOLLOWERS))
    def the_controller_removes_one(self, leaving: int) -> None:
        self.isr = tuple(member for member in self.isr if member != leaving)
        self.epochs += 1
        self.update()

    @invariant()
    def they_know_the_same(self) -> None:
        ours, theirs = self.quiet.machine, self.twin.machine
        assert ours.high_watermark == theirs.high_watermark
        assert ours.maximal_isr == theirs.maximal_isr
        for broker_id in FOLLOWERS:
            mine, other = ours.progress_of(broker_id), theirs.progress_of(broker_id)
            assert mine is not None
            assert other is not None
            assert mine.end_offset == other.end_offset
            if mine.rests_in is None:
                assert mine == other
            else:
                assert mine.end_offset == self.quiet.log.end_offset
                assert max(mine.caught_up_ms, mine.rests_in.last_fetch_ms) == other.caught_up_ms


TestRest = Rest.TestCase
TestRest.settings = settings(max_examples=150, stateful_step_count=40)


def test_who_rested_was_caught_up_as_of_the_last_request_of_the_session() -> None:
    """Otherwise a follower of an idle partition would lag from the first append on."""
    bench, session = MachineBench(end=0), Attendance()
    bench.update(state(isr=(1, 2), replicas=(1, 2)))
    bench.machine.fetched(2, 0, bench.status(2), bench.now_ms, session)
    assert bench.machine.rests(2, session)
    bench.now_ms += 10 * bench.LAG_MS
    session.last_fetch_ms = bench.now_ms
    bench.now_ms += 500
    bench.append(1)
    assert not bench.machine.rests(2, session)
    assert bench.tick(bench.LAG_MS - 501) == []
    (proposed,) = bench.tick(2)
    assert isinstance(proposed, Proposed)
    assert [member.broker_id for member in proposed.isr] == [1]
