"""The ledger's rules, and a model of drivers that crash at any step."""

from __future__ import annotations

from dataclasses import replace

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
    to_abort,
)
from stele.spark.numbers import Numbers
from tests.support.spark_ledger import Record, replayed

RUNS = st.sampled_from(["r1", "r2", "r3"])


def of(kind: Kind, run: str, batch: int = -1, *names: str) -> Entry:
    return Entry(kind, "w", run, batch, tuple(Prepared(name, "7:0") for name in names))


def state_of(*entries: Entry) -> Decisions:
    return replayed(records_of(*entries))


def records_of(*entries: Entry) -> list[Record]:
    return [Record(b"%d" % n, entry.encode(), n) for n, entry in enumerate(entries)]


def without(records: list[Record], keys: list[bytes]) -> list[Record]:
    return [*records, *(Record(key, None) for key in keys)]


def test_entries_survive_the_ledger() -> None:
    entry = replace(of("commit", "r1", 4, "a", "b"), done=Numbers(((0, 2),), 0), topics=("t",))
    assert Entry.decode(entry.encode()) == entry


def test_entries_of_older_clients_are_read() -> None:
    value = b'{"version": 1, "kind": "commit", "write": "w", "run": "r1", "batch": 4, '
    entry = Entry.decode(value + b'"transactions": [["a", "7:0"]]}')
    assert entry == of("commit", "r1", 4, "a")


WHOLE = b'"write": "w", "run": "r1", "batch": 4, "transactions": []}'


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"version": 1, "kind": "claim"}',
        b'{"version": 2, "kind": "claim", ' + WHOLE,
        b'{"version": 1, "kind": "undo", ' + WHOLE,
    ],
)
def test_strange_records_are_refused(value: bytes) -> None:
    assert Entry.decode(b'{"version": 1, "kind": "claim", ' + WHOLE) == of("claim", "r1", 4)
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


def test_the_last_commit_alone_knows_which_batches_are_decided() -> None:
    entries = [
        of("claim", "r1", 4),
        of("commit", "r1", 4, "a"),
        of("claim", "r2", 5),
        of("abort", "r2", 5),
        of("claim", "r3", 5),
        replace(of("commit", "r3", 5, "b"), done=Numbers(((4, 4),))),
    ]
    records = records_of(*entries)
    needless = replayed(records).needless("w")
    assert needless == [b"0", b"2", b"3", b"1"]
    state = replayed(without(records, needless))
    assert [state.is_decided("w", batch) for batch in (3, 4, 5, 6)] == [False, True, True, False]
    assert state.latest_run("w") == "r3"
    assert state.standing("w", 4) is None
    assert state.needless("w") == []


def test_a_decided_batch_is_decided_whatever_came_after() -> None:
    """Number 2 was written, then 1, then both again."""
    entries = [
        of("claim", "r2", 2),
        of("commit", "r2", 2, "a"),
        of("claim", "r1", 1),
        replace(of("commit", "r1", 1, "b"), done=Numbers(((2, 2),))),
    ]
    state = state_of(*entries)
    state = replayed(without(records_of(*entries), state.needless("w")))
    assert state.done("w") == Numbers(((1, 2),))


def test_a_claim_that_repeats_another_never_becomes_the_first_one() -> None:
    """Two tasks of r1 claim at the same time, and r2 comes between."""
    records = records_of(of("claim", "r1"), of("claim", "r2"), of("claim", "r1"))
    needless = replayed(records).needless("w", before_ms=1)
    assert needless == [b"2", b"0"]
    for count in range(len(needless) + 1):
        assert replayed(without(records, needless[:count])).latest_run("w") == "r2"


def test_claims_of_a_query_that_starts_often_are_needless_after_a_day() -> None:
    """Of the runs of a query nobody knows to which batches they would come."""
    state = state_of(*[of("claim", f"r{n}") for n in range(5)])
    assert state.needless("w", before_ms=3) == [b"0", b"1", b"2"]
    assert state.needless("w", before_ms=9) == [b"0", b"1", b"2", b"3"]


def test_whatever_the_latest_run_said_counts_however_old_it_is() -> None:
    """Without its abort the run could commit the batch after all."""
    records = records_of(of("claim", "r1"), of("abort", "r1", 3))
    assert replayed(records).needless("w", before_ms=10**12) == []
    later = [*records, Record(b"later", of("claim", "r2").encode(), 2)]
    assert replayed(later).needless("w", before_ms=10**12) == [b"0", b"1"]


def test_a_run_has_claimed_the_writes_that_it_claimed() -> None:
    state = state_of(of("claim", "r1"))
    claims = [(write, run) for write in ("w", "v") for run in ("r1", "r2")]
    assert [each for each in claims if state.has_claimed(*each)] == [("w", "r1")]


def test_a_job_without_a_name_is_over_when_nothing_was_heard_of_it() -> None:
    unnamed = [Entry("claim", "r1@t", "r1", 0), Entry("commit", "r1@t", "r1", 0)]
    state = state_of(*unnamed, of("claim", "r1"), of("commit", "r1", 0))
    assert state.over(before_ms=1) == []
    assert state.over(before_ms=2) == ["r1@t"]
    assert state.keys("r1@t") == [b"0", b"1"]


def test_only_open_transactions_that_nothing_lists_are_aborted_and_only_by_the_latest_run() -> None:
    state = state_of(of("claim", "r1"), of("commit", "r1", 4, "a"))
    assert to_abort(state, "w", ["a", "b"], "r1") == ["b"]
    assert to_abort(state, "w", ["a", "b"], "r2") == []


STEPS = st.lists(
    st.tuples(st.sampled_from(["claim", "commit", "abort"]), RUNS, st.integers(0, 2)),
    max_size=12,
)


def history(steps: list[tuple[Kind, str, int]]) -> list[Entry]:
    """Runs of one batch each, or of any. A driver reads the ledger before it writes a commit."""
    entries: list[Entry] = []
    for n, (kind, run, batch) in enumerate(steps):
        entry = of(kind, run, batch, f"{run}-{n}")
        entries.append(replace(entry, done=state_of(*entries).done("w")))
    return entries


@given(STEPS, STEPS, st.integers(0, 12), st.data())
def test_needless_records_change_nothing(
    before: list[tuple[Kind, str, int]],
    after: list[tuple[Kind, str, int]],
    old_ms: int,
    data: st.DataObject,
) -> None:
    """Whatever part of them compaction has removed, and whatever comes later, by runs that may have
    claimed before and by others."""
    entries = history(before)
    records = records_of(*entries)
    needless = replayed(records).needless("w", old_ms)
    removed = needless[: data.draw(st.integers(0, len(needless)))]
    entries = history([*before, *[(kind, f"later {run}", n) for kind, run, n in after]])
    records = records_of(*entries)
    whole, part = replayed(records), replayed(without(records, removed))
    assert part.done("w") == whole.done("w")
    assert part.latest_run("w") == whole.latest_run("w")
    was_done = state_of(*entries[: len(before)]).done("w")
    new = [n for n in range(3) if n not in was_done]
    assert [part.standing("w", n) for n in new] == [whole.standing("w", n) for n in new]


@given(STEPS)
def test_a_decision_that_stands_stands_for_ever(steps: list[tuple[Kind, str, int]]) -> None:
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
        self.records: list[Record] = []
        self.transactions: dict[str, str] = {}
        self.runs = 0
        self.prepared: list[tuple[str, int, str]] = []  # run, batch, id: what drivers were told
        self.stood: dict[int, Entry] = {}  # what was seen to stand at any time
        self.batch = 0  # the first one that Spark does not know to be done

    @property
    def state(self) -> Decisions:
        return replayed(self.records)

    def append(self, entry: Entry) -> None:
        number = len(self.records)
        self.records.append(Record(b"%d" % number, entry.encode(), number))

    @rule()
    def start_a_run(self) -> None:
        self.runs += 1

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def run_a_task(self, data: st.DataObject) -> None:
        """A task of any run, also of one that is dead, begins batch ``self.batch``."""
        run = f"r{data.draw(st.integers(1, self.runs))}"
        if not self.state.has_claimed("w", run):
            self.append(of("claim", run))
        state = self.state
        if state.latest_run("w") != run or state.is_decided("w", self.batch):
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
        self.append(replace(of("commit", run, batch, *names), done=self.state.done("w")))

    @precondition(lambda self: self.prepared)
    @rule(data=st.data())
    def decide_without_looking(self, data: st.DataObject) -> None:
        """The record was on its way when another run came."""
        run, batch, _ = data.draw(st.sampled_from(self.prepared))
        names = [name for r, b, name in self.prepared if (r, b) == (run, batch)]
        done = state_of().done("w") if data.draw(st.booleans()) else self.state.done("w")
        self.append(replace(of("commit", run, batch, *names), done=done))

    @precondition(lambda self: self.prepared)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        run, batch, _ = data.draw(st.sampled_from(self.prepared))
        if not self.state.is_decided("w", batch):
            self.append(of("abort", run, batch))
            if not self.state.is_decided("w", batch):
                self._abort([n for r, b, n in self.prepared if (r, b) == (run, batch)])

    @rule()
    def finish(self) -> None:
        """A process that finds a decision commits its transactions. The last run aborts others."""
        state = self.state
        standing = state.standing("w", self.batch)
        if standing is None:
            return
        for each in standing.transactions:
            assert self.transactions[each.transactional_id] != "aborted"
            self.transactions[each.transactional_id] = "committed"
        still_open = [name for name, what in self.transactions.items() if what == "open"]
        self._abort(to_abort(state, "w", still_open, state.latest_run("w") or ""))
        self.batch += 1

    @precondition(lambda self: self.batch)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """After a batch a process removes needless records, or dies while it does so. Claims are
        never old here: their tasks may be alive."""
        state = self.state
        for standing in state.all_standing("w"):
            if {self.transactions[each.transactional_id] for each in standing.transactions} - {
                "committed"
            }:
                return
        needless = state.needless("w")
        count = data.draw(st.integers(0, len(needless)))
        self.records += [Record(key, None) for key in needless[:count]]

    def _abort(self, names: list[str]) -> None:
        for name in names:
            assert self.transactions[name] != "committed"
            self.transactions[name] = "aborted"

    @invariant()
    def what_is_committed_stands(self) -> None:
        state = self.state
        for one in state.all_standing("w"):
            self.stood.setdefault(one.batch, one)
        standing = {
            each.transactional_id for one in self.stood.values() for each in one.transactions
        }
        assert all(state.is_decided("w", batch) for batch in self.stood)
        assert {one.batch: one for one in state.all_standing("w")}.items() <= self.stood.items()
        committed = {name for name, what in self.transactions.items() if what == "committed"}
        assert committed <= standing
        assert not any(self.transactions[name] == "aborted" for name in standing)


TestSink = Sink.TestCase
TestSink.settings = settings(max_examples=60, stateful_step_count=25)
