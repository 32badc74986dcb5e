"""The ledger's rules, and a model of drivers that crash at any step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stele.spark.decisions import (
    Decisions,
    Entry,
    Kind,
    LedgerError,
    Prepared,
    replayed,
    to_abort,
)

RUNS = st.sampled_from(["r1", "r2", "r3"])


def of(kind: Kind, run: str, batch: int = -1, *names: str) -> Entry:
    return Entry(kind, "w", run, batch, tuple(Prepared(name, "7:0") for name in names))


def state_of(*entries: Entry) -> Decisions:
    return replayed([(b"%d" % n, entry.encode()) for n, entry in enumerate(entries)])


def test_entries_survive_the_ledger() -> None:
    entry = of("commit", "r1", 4, "a", "b")
    assert Entry.decode(entry.encode()) == entry


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b'{"version": 2, "kind": "claim"}', b'{"version": 1, "kind": "undo"}', b"\xff"],
)
def test_strange_records_are_refused(value: bytes) -> None:
    with pytest.raises(LedgerError):
        Entry.decode(value)


def test_the_first_commit_of_a_batch_stands() -> None:
    state = state_of(of("claim", "r1"), of("commit", "r1", 4, "a"), of("commit", "r1", 4, "b"))
    standing = state.standing("w", 4)
    assert standing is not None
    assert [each.transactional_id for each in standing.transactions] == ["a"]
    assert state.standing("w", 5) is None
    assert state.standing("other", 4) is None


def test_a_run_that_a_later_one_has_followed_decides_nothing() -> None:
    state = state_of(of("claim", "r1"), of("claim", "r2"), of("commit", "r1", 4, "a"))
    assert state.standing("w", 4) is None
    assert state.latest_run("w") == "r2"
    claimed_late = state_of(of("claim", "r1"), of("claim", "r2"), of("claim", "r1"))
    assert claimed_late.latest_run("w") == "r2"


def test_a_run_that_aborted_a_batch_does_not_commit_it_any_more() -> None:
    entries = [of("claim", "r1"), of("abort", "r1", 4), of("commit", "r1", 4, "a")]
    assert state_of(*entries).standing("w", 4) is None
    again = state_of(*entries, of("claim", "r2"), of("commit", "r2", 4, "b"))
    assert again.standing("w", 4) is not None


def test_a_batch_job_needs_no_claim() -> None:
    assert state_of(of("commit", "r1", 0, "a")).standing("w", 0) is not None


def test_removed_records_are_gone() -> None:
    records = [(b"1", of("commit", "r1", 4, "a").encode()), (b"2", of("commit", "r1", 5).encode())]
    state = replayed([*records, (b"1", None)])
    assert state.standing("w", 4) is None
    assert state.old_keys("w", 6) == [b"2"]
    assert state.old_keys("w", 5) == []


def test_only_open_transactions_that_nothing_lists_are_aborted_and_only_by_the_latest_run() -> None:
    state = state_of(of("claim", "r1"), of("commit", "r1", 4, "a"))
    there = {"a": True, "b": True, "c": False}
    assert to_abort(state, "w", there, "r1") == ["b"]
    assert to_abort(state, "w", there, "r2") == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["claim", "commit", "abort"]), RUNS, st.integers(0, 2)),
        max_size=12,
    )
)
def test_what_stands_stands_for_ever(steps: list[tuple[Kind, str, int]]) -> None:
    entries = [of(kind, run, batch, f"{run}-{n}") for n, (kind, run, batch) in enumerate(steps)]
    before: dict[int, Entry] = {}
    for count in range(len(entries) + 1):
        state = state_of(*entries[:count])
        now = {n: found for n in range(3) if (found := state.standing("w", n)) is not None}
        assert before.items() <= now.items()
        before = now


class Sink(RuleBasedStateMachine):
    """Runs of one query that die at any step, with tasks and drivers that go on as zombies.

    Transactions are open, prepared, committed or aborted, as the coordinators know them. The law:
    of each batch exactly the transactions of one commit are committed in the end, and nobody ever
    finds that a transaction that stands was aborted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.transactions: dict[str, str] = {}
        self.runs = 0
        self.prepared: list[tuple[str, int, str]] = []  # run, batch, id: what drivers were told
        self.batch = 0  # the first one that Spark does not know to be done

    @property
    def state(self) -> Decisions:
        return state_of(*self.entries)

    @rule()
    def start_a_run(self) -> None:
        self.runs += 1

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def run_a_task(self, data: st.DataObject) -> None:
        """A task of any run, also of one that is dead, begins batch ``self.batch``."""
        run = f"r{data.draw(st.integers(1, self.runs))}"
        if not self.state.has_claimed("w", run):
            self.entries.append(of("claim", run))
        state = self.state
        if state.latest_run("w") != run or state.standing("w", self.batch) is not None:
            return
        name = f"{run}-{len(self.transactions)}"
        self.transactions[name] = "open"
        if data.draw(st.booleans()):  # or it dies here
            self.prepared.append((run, self.batch, name))

    @precondition(lambda self: self.prepared)
    @rule(data=st.data())
    def decide(self, data: st.DataObject) -> None:
        """A driver, perhaps a late one, writes its decision about what its tasks have prepared."""
        run, batch, _ = data.draw(st.sampled_from(self.prepared))
        if self.state.latest_run("w") != run:
            return
        names = [name for r, b, name in self.prepared if (r, b) == (run, batch)]
        self.entries.append(of("commit", run, batch, *names))

    @precondition(lambda self: self.prepared)
    @rule(data=st.data())
    def decide_without_looking(self, data: st.DataObject) -> None:
        """The record was on its way when another run came."""
        run, batch, _ = data.draw(st.sampled_from(self.prepared))
        names = [name for r, b, name in self.prepared if (r, b) == (run, batch)]
        self.entries.append(of("commit", run, batch, *names))

    @precondition(lambda self: self.prepared)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        run, batch, _ = data.draw(st.sampled_from(self.prepared))
        if self.state.standing("w", batch) is None:
            self.entries.append(of("abort", run, batch))
            if self.state.standing("w", batch) is None:
                self._abort([n for r, b, n in self.prepared if (r, b) == (run, batch)])

    @rule()
    def finish(self) -> None:
        """Whoever finds a decision commits its transactions. The latest run sweeps up the rest."""
        state = self.state
        standing = state.standing("w", self.batch)
        if standing is None:
            return
        for each in standing.transactions:
            assert self.transactions[each.transactional_id] != "aborted"
            self.transactions[each.transactional_id] = "committed"
        there = {name: what == "open" for name, what in self.transactions.items()}
        self._abort(to_abort(state, "w", there, state.latest_run("w") or ""))
        self.batch += 1

    def _abort(self, names: list[str]) -> None:
        for name in names:
            assert self.transactions[name] != "committed"
            self.transactions[name] = "aborted"

    @invariant()
    def what_is_committed_stands(self) -> None:
        standing = {
            each.transactional_id
            for one in self.state.all_standing("w")
            for each in one.transactions
        }
        committed = {name for name, what in self.transactions.items() if what == "committed"}
        assert committed <= standing
        assert not any(self.transactions[name] == "aborted" for name in standing)


TestSink = Sink.TestCase
TestSink.settings = settings(max_examples=60, stateful_step_count=25)
