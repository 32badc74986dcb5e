"""The chain of transactions: its records, and what the verdict finds of them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.drills.chain.findings import ChainFindings, find_chain
from chaos.drills.chain.records import UNKNOWN, Run, named, passed_on, runs_of, value_of
from chaos.drills.history import Chained, Event, Expectations, History, Hop, Step
from chaos.drills.verdict import judge
from tests.support.histories import green


def out_of_the_chain(source: str, partition: int, number: int, sent_ms: float = 0.0) -> bytes:
    return passed_on(passed_on(value_of(source, partition, number, sent_ms), 1), 2)


def history(*events: Event) -> History:
    header = dataclasses.replace(
        green().header, expectations=Expectations(chain=True, drain_ms=5_000)
    )
    return History(header, events)


def chained(stage: str, at_ms: float, *runs: Run) -> list[Event]:
    return [
        Chained(at_ms, stage, run.source, run.partition, run.first, run.length, run.latency_ms)
        for run in runs
    ]


def found(*events: Event) -> ChainFindings:
    told = find_chain(history(*events))
    assert told is not None
    return told


# ----------------------------------------------------------------------------------- records


def test_a_value_tells_its_record_and_the_hops_that_it_has_passed() -> None:
    value = value_of("source-1", 3, 17, 1234.5)
    assert named(value) == (0, "source-1", 3, 17, 1234.5)
    assert named(passed_on(value, 1)) == (1, "source-1", 3, 17, 1234.5)
    for hop in (2, 3):
        with pytest.raises(ValueError, match="has passed 0 hops"):
            passed_on(value, hop)
    with pytest.raises(ValueError, match="has passed 2 hops"):
        passed_on(out_of_the_chain("s", 0, 0), 1)


@pytest.mark.parametrize("value", [None, b"", b"no chain's", b"2 s 0 zero 0 .", b"\xff " * 6])
def test_a_value_of_no_source_is_unknown(value: bytes | None) -> None:
    assert named(value) is None
    assert runs_of([(0, value)], 0.0) == [Run(UNKNOWN, 0, 0, 1)]


def test_a_value_that_missed_a_hop_or_is_elsewhere_is_unknown() -> None:
    value = passed_on(value_of("s", 0, 0, 0.0), 1)
    elsewhere = out_of_the_chain("s", 1, 0)
    assert runs_of([(0, value), (0, elsewhere)], 0.0) == [Run(UNKNOWN, 0, 0, 1)] * 2


def test_neighbours_are_one_run() -> None:
    """A run is as old as its first record."""
    values = [
        (partition, out_of_the_chain(source, partition, number, sent_ms))
        for source, partition, number, sent_ms in [
            ("a", 0, 0, 10.0), ("a", 1, 5, 20.0), ("a", 0, 1, 30.0), ("a", 0, 3, 40.0),
            ("b", 0, 4, 50.0), ("b", 0, 4, 60.0),
        ]
    ]  # fmt: skip
    assert runs_of(values, 100.0) == [
        Run("a", 0, 0, 2, 90.0), Run("a", 0, 3, 1, 60.0), Run("b", 0, 4, 1, 50.0),
        Run("b", 0, 4, 1, 40.0), Run("a", 1, 5, 1, 80.0),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------- findings

SENT = chained("sent", 0, Run("a", 0, 0, 10), Run("b", 1, 0, 4))
ACKED = chained("acked", 100, Run("a", 0, 0, 10), Run("b", 1, 0, 4))
END = Step(1_000, "end", "nothing more is written")


def test_everything_once_is_green() -> None:
    told = found(*SENT, *ACKED, END, *chained("out", 2_500, Run("a", 0, 0, 10), Run("b", 1, 0, 4)))
    assert (told.acknowledged, told.out) == (14, 14)
    assert [told.lost, told.twice, told.reordered, told.unsent] == [()] * 4
    assert told.unknown == 0
    assert told.drained_ms == 1_500
    assert told.in_per_s == 14


def test_a_history_without_a_chain_has_no_findings() -> None:
    assert find_chain(history(END)) is None
    assert "records went through the chain" in {each.name for each in judge(history(END)).broken}


@pytest.mark.parametrize(
    ("out", "broken"),
    [
        ([Run("a", 0, 0, 10), Run("b", 1, 0, 3)], "every acknowledged record came out"),
        ([Run("a", 0, 0, 10), Run("b", 1, 0, 4), Run("a", 0, 9, 1)], "came out of the chain twice"),
        ([Run("a", 0, 5, 5), Run("a", 0, 0, 5), Run("b", 1, 0, 4)], "behind a later one"),
        ([Run("a", 0, 0, 11), Run("b", 1, 0, 4)], "that no source sent"),
        ([Run("a", 0, 0, 10), Run("b", 1, 0, 4), Run(UNKNOWN, 0, 0, 1)], "passed each hop once"),
    ],
)
def test_each_breach_is_found(out: list[Run], broken: str) -> None:
    events = (*SENT, *ACKED, END, *chained("out", 2_000, *out))
    names = [each.name for each in judge(history(*events)).broken if "chain" in each.name or
             "hop" in each.name]  # fmt: skip
    assert len(names) == 1
    assert broken in names[0]


def test_a_chain_that_drains_too_late_is_red() -> None:
    out = chained("out", 6_001, Run("a", 0, 0, 10), Run("b", 1, 0, 4))
    broken = judge(history(*SENT, *ACKED, END, *out)).broken
    assert ("all records are out 5 s after the writing ended", "5001 ms") in [
        (each.name, each.told) for each in broken
    ]


def test_what_was_not_acknowledged_may_be_missing_or_there_once() -> None:
    """Its source was killed before it heard."""
    acked = chained("acked", 100, Run("a", 0, 0, 10))
    out = chained("out", 2_000, Run("a", 0, 0, 10), Run("b", 1, 0, 2))
    told = found(*SENT, *acked, END, *out)
    assert [told.lost, told.twice, told.unsent] == [()] * 3


def test_transactions_are_counted_for_each_hop() -> None:
    told = found(
        *SENT,
        Hop(1, 1, "committed", 10, 30.0, ""),
        Hop(2, 1, "committed", 4, 50.0, ""),
        Hop(3, 2, "aborted", 14, 0.0, "because"),
        Hop(4, 2, "again", 0, 0.0, "fenced"),
    )
    first, second = told.hops
    assert (first.committed, first.records, first.took_p50_ms, first.took_p99_ms) == (2, 14, 30, 50)
    assert (second.committed, second.aborted, second.began_anew) == (0, 1, 1)


RUNS = st.lists(
    st.builds(
        Run,
        st.sampled_from("ab"),
        st.integers(0, 1),
        st.integers(0, 12),
        st.integers(1, 6),
    ),
    max_size=8,
)


def _names(runs: Iterable[Run]) -> list[tuple[str, int, int]]:
    return [
        (run.source, run.partition, number)
        for run in runs
        for number in range(run.first, run.first + run.length)
    ]


@given(acked=RUNS, out=RUNS)
def test_findings_agree_with_counting_one_by_one(acked: list[Run], out: list[Run]) -> None:
    events = [*chained("sent", 0, *acked), *chained("acked", 0, *acked), *chained("out", 1, *out)]
    told = find_chain(history(*events))
    if told is None:
        assert not acked
        assert not out
        return
    heard, came = set(_names(acked)), Counter(_names(out))
    assert [tuple(each) for each in told.lost] == sorted(heard - set(came))
    assert [tuple(each) for each in told.twice] == sorted(n for n in came if came[n] > 1)
    assert (told.acknowledged, told.out) == (len(heard), came.total())
    greatest: dict[tuple[str, int], int] = {}
    late = set()
    for name in dict.fromkeys(_names(out)):
        lane = name[:2]
        if name[2] < greatest.get(lane, -1):
            late.add(name)
        greatest[lane] = max(name[2], greatest.get(lane, -1))
    assert {tuple(each) for each in told.reordered} == late
