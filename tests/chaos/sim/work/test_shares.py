"""Members of a share group in a cluster where nothing goes wrong but they."""

from __future__ import annotations

import random

import pytest

from chaos.sim.laws.decided_records import DecidedRecordsStayDecided
from chaos.sim.laws.share_coordinator_logs import ShareCoordinatorsReplayTheirLogs
from chaos.sim.laws.share_holders import SharedRecordsHaveOneHolder
from chaos.sim.laws.share_members import ShareMembersKeepTheirEpochs
from chaos.sim.laws.share_windows import StartOffsetsPassDoneRecords
from chaos.sim.runs.swarm import Plan, run, silent
from chaos.sim.work.load import LoadKind
from chaos.sim.work.shares import ShareLoad


def drawn(number: int) -> ShareLoad:
    return ShareLoad.draw(random.Random(number))


def test_a_quarter_of_the_runs_have_a_share_group() -> None:
    there = [drawn(number).is_there for number in range(400)]
    assert 80 < sum(there) < 120


def test_members_do_all_that_they_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = (drawn(number) for number in range(100))
    load = next(each for each in loads if each.is_there and each.poison > 0.05)
    monkeypatch.setattr(ShareLoad, "draw", lambda _: load)
    with silent():
        outcome = run(Plan(4, seconds=40, faults=("conditions",), load=LoadKind.LIGHT))
    assert outcome.ok, outcome.violations
    for what in (
        "acknowledgements of shared records: INVALID_RECORD_STATE",
        "acknowledgements of shared records: NONE",
        "assignments of share groups",
        "share members died",
        "share members left",
        "share members left with records",
        "lags of share groups",
        "share members stood still",
        "shared records acknowledged twice",
        "shared records delivered again",
        "shared records left to their locks",
        "shared records renewed",
    ):
        assert outcome.coverage.get(what, 0) > 0, what
    for law in (
        DecidedRecordsStayDecided,
        SharedRecordsHaveOneHolder,
        StartOffsetsPassDoneRecords,
        ShareCoordinatorsReplayTheirLogs,
        ShareMembersKeepTheirEpochs,
    ):
        assert outcome.looks[law.name] > 30, law.name
