"""Random lives of a transaction coordinator beside a twin that thinks of clients alone."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.coordinator.step import Request
from broker.coordinator.transaction.partitions import NO_PARTITIONS
from broker.coordinator.transaction.records import RecordedTransaction, transaction_record
from broker.coordinator.transaction.types import (
    NEEDS_PRODUCER_ID,
    NO_TIMEOUT_MS,
    AddPartitionsAnswer,
    AddPartitionsRequest,
    EndAnswer,
    EndRequest,
    ForgetRequest,
    InitAnswer,
    InitRequest,
    TransactionRef,
    TransactionState,
)
from stele.errors import ErrorCode
from tests.support.coordinators import Heard
from tests.support.strict_steps import inspect
from tests.support.transaction_twin import Pair, Twin
from tests.support.transactions import START_MS, TransactionBench, partitions

PARTITIONS = partitions("a0", "a1", "b0")
TIMEOUT_MS = 5_000
some = st.sets(st.sampled_from(PARTITIONS)).map(sorted)


class StrictBench(TransactionBench):
    """Looks at every step: one with records must have changed nothing."""

    def ask(self, request: Request[Any]) -> Heard:
        before = inspect(vars(self.machine))
        heard = Heard()
        step = self.machine.take(request, heard, self.now)
        if step.records:
            assert inspect(vars(self.machine)) == before
        self.take(step, heard)
        return heard


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = StrictBench(transaction_two_phase_commit_enable=True)
        self.bench.writes_markers = False
        self.bench.commits_at_once = False
        self.twin = Twin(level=2)
        # By length of the log: what the twin was when the log had this length.
        self.history = [copy.deepcopy(self.twin)]
        # Each waiter, and the answer that it must get.
        self.heard: list[tuple[Heard, Any]] = []
        self.pairs: list[Pair] = [(-1, -1), (7, 0)]

    # ------------------------------------------------------------------ helpers

    def keep(self) -> None:
        """Remember the twin beside the log, which may have grown by two records."""
        while len(self.history) <= len(self.bench.log):
            self.history.append(copy.deepcopy(self.twin))

    def ask(self, request: Any) -> Heard:
        """Ask, and again if that takes a fresh producer id."""
        heard = self.bench.ask(request)
        if heard.told != [NEEDS_PRODUCER_ID]:
            return heard
        request = replace(request, fresh_producer_id=self.fresh)
        return self.bench.ask(request)

    def expect(self, heard: Heard, answer: Any) -> None:
        self.heard.append((heard, answer))
        if getattr(answer, "producer_id", -1) >= 0:
            self.pairs.append((answer.producer_id, answer.producer_epoch))
        self.keep()

    @property
    def fresh(self) -> int:
        """Producer ids are given out by the length of the log. So they are the same again if a
        part of the log is lost, which is as good as another one."""
        return 1_000 + len(self.bench.log)

    def ref(self, data: st.DataObject) -> TransactionRef:
        return TransactionRef("t", *self.pair(data))

    def pair(self, data: st.DataObject) -> Pair:
        """Most often one of the last ones."""
        known = self.pairs[-4:] if data.draw(st.booleans()) else self.pairs
        if self.twin.client is not None and data.draw(st.booleans()):
            return self.twin.client
        return data.draw(st.sampled_from(known))

    # ------------------------------------------------------------------ rules

    @initialize(epoch=st.sampled_from([None, None, 32_763, 32_765, 32_766]), two=st.booleans())
    def begin(self, epoch: int | None, two: bool) -> None:
        """Perhaps the transactional id has been used for long."""
        if epoch is not None:
            timeout_ms = NO_TIMEOUT_MS if two else TIMEOUT_MS
            state = TransactionState.EMPTY
            value = RecordedTransaction(99, epoch, timeout_ms, state, NO_PARTITIONS, START_MS)
            self.bench.append(transaction_record("t", value, 2))
            self.twin.client = (99, epoch)
            self.twin.timeout_ms = None if two else TIMEOUT_MS
            self.pairs.append((99, epoch))
            self.keep()

    @rule(data=st.data(), goes_on=st.booleans(), keeps=st.booleans(), two=st.booleans())
    def init(self, data: st.DataObject, goes_on: bool, keeps: bool, two: bool) -> None:
        expected = self.pair(data) if goes_on else None
        if expected == (-1, -1):
            expected = None
        request = InitRequest(
            "t", TIMEOUT_MS, *(expected or (-1, -1)), enable_two_phase_commit=two,
            keep_prepared=keeps,
        )  # fmt: skip
        fresh = self.fresh
        heard = self.ask(request)
        (error, pair), kept = self.twin.init(
            expected, keeps=keeps, timeout_ms=None if two else TIMEOUT_MS, fresh=fresh
        )
        self.expect(heard, InitAnswer(error, *(pair or (-1, -1)), *(kept or (-1, -1))))

    @rule(data=st.data(), names=some, verifies=st.booleans(), version=st.sampled_from([0, 2]))
    def add(self, data: st.DataObject, names: Any, verifies: bool, version: int) -> None:
        ref = self.ref(data)
        request = AddPartitionsRequest(ref, tuple(names), verifies, version)
        heard = self.ask(request)
        told = self.twin.add(ref[1:], names, self.bench.now.time_ms, verifies=verifies)
        if isinstance(told, ErrorCode):
            self.expect(heard, AddPartitionsAnswer(told, (told,) * len(names)))
        else:
            self.expect(heard, AddPartitionsAnswer(ErrorCode.NONE, tuple(told)))

    @rule(data=st.data(), commits=st.booleans(), version=st.sampled_from([0, 2]))
    def end(self, data: st.DataObject, commits: bool, version: int) -> None:
        ref = self.ref(data)
        fresh = self.fresh
        heard = self.ask(EndRequest(ref, commits, version))
        error, pair = self.twin.end(ref[1:], commits=commits, version=version, fresh=fresh)
        self.expect(heard, EndAnswer(error, *(pair or (-1, -1))))

    @rule()
    def forget(self) -> None:
        heard = self.bench.ask(ForgetRequest("t"))
        self.expect(heard, self.twin.forget())

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        bench = self.bench
        bench.commit(data.draw(st.integers(bench.high_watermark, len(bench.log))))

    @precondition(lambda self: self.bench.due)
    @rule(names=some, everything=st.booleans())
    def write_markers(self, names: Any, everything: bool) -> None:
        (due,) = self.bench.due
        transaction = self.twin.transaction
        assert transaction is not None
        assert transaction.commits is not None
        writer = (transaction.writer[0], transaction.marker_epoch)
        assert (due.ref[1:], due.commit) == (writer, transaction.commits)
        assert set(due.partitions) == transaction.unmarked
        if self.twin.level > 0:
            assert due.transaction_version == transaction.marker_version
        done = due.partitions if everything else names
        if self.twin.marked(done):
            self.twin.complete()
        self.bench.write_markers(done)
        self.keep()

    @rule(data=st.data())
    def write_markers_of_others(self, data: st.DataObject) -> None:
        """Markers of a transaction that is over, or of none, change nothing."""
        told = self.twin.told_pair
        pair = self.pair(data)
        if pair != told:
            self.bench.mark(TransactionRef("t", *pair), PARTITIONS)
        self.bench.mark(TransactionRef("u", *pair), PARTITIONS)

    @rule(ms=st.sampled_from([1, 2_500, TIMEOUT_MS]))
    def pass_time(self, ms: int) -> None:
        if self.bench.now.time_ms + ms >= self.twin.deadline_ms:
            self.twin.abort()
        self.bench.pass_time(ms)
        self.keep()

    @rule(level=st.sampled_from([0, 1, 2, 2, 2]))
    def change_level(self, level: int) -> None:
        self.bench.version = self.twin.level = level

    @rule(data=st.data(), loses=st.booleans())
    def reload(self, data: st.DataObject, loses: bool) -> None:
        """Another broker coordinates. It has what is committed, and perhaps more."""
        bench = self.bench
        length = len(bench.log)
        if loses:
            length = data.draw(st.integers(bench.high_watermark, length))
        level = self.twin.level
        del self.history[length + 1 :]
        self.twin = copy.deepcopy(self.history[length])
        self.twin.level = level
        if self.twin.is_deciding:
            assert self.twin.transaction is not None
            self.twin.transaction.unmarked = set(self.twin.transaction.partitions)
        self.check_heard()
        bench.reload(keeps=length)
        for heard, expected in self.heard:
            assert heard.told in ([expected], [ErrorCode.NOT_COORDINATOR])
        self.heard.clear()
        self.pass_time(0)

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def check_heard(self) -> None:
        """Nobody hears anything else than what the twin says, nor hears it twice."""
        for heard, expected in self.heard:
            assert heard.told in ([], [expected])
        self.heard = [each for each in self.heard if not each[0].told]
        if self.bench.high_watermark == len(self.bench.log):
            assert not self.heard

    @invariant()
    def check_state(self) -> None:
        value, twin = self.bench.machine.value_of("t"), self.twin
        if value is None:
            assert twin.client is None
            return
        assert value.state.label == twin.state
        assert (value.producer_id, value.producer_epoch) == twin.told_pair
        open_ones = set() if twin.transaction is None else twin.transaction.partitions
        assert set(value.partitions) == open_ones

    @invariant()
    def a_reload_changes_nothing(self) -> None:
        """A machine that reads the log knows the same."""
        bench = self.bench
        other = bench.fresh()
        for offset, record in enumerate(bench.log):
            other.replay(offset, record, bench.now)
        assert other.value_of("t") == bench.machine.value_of("t")


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
