"""Share groups that begin behind, or that read committed records only, where nothing else goes
wrong."""

from __future__ import annotations

import random

import pytest

from chaos.sim.laws.share_lags import LagsCountWhatIsLeft
from chaos.sim.runs.swarm import Plan, run, silent
from chaos.sim.work.audits import AuditLoad
from chaos.sim.work.backlog import BacklogLoad
from chaos.sim.work.load import LoadKind
from chaos.sim.work.transaction_work import SETTINGS, TransactionLoad


def test_a_part_of_the_runs_have_them() -> None:
    rngs = [random.Random(number) for number in range(400)]
    assert 50 < sum(BacklogLoad.draw(rng).is_there for rng in rngs) < 110
    assert 110 < sum(AuditLoad.draw(rng).is_there for rng in rngs) < 170


def test_a_group_that_begins_behind_fills_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    load = next(
        each
        for each in (BacklogLoad.draw(random.Random(number)) for number in range(100))
        if each.is_there
    )
    monkeypatch.setattr(BacklogLoad, "draw", lambda _: load)
    with silent():
        outcome = run(Plan(1, seconds=8, faults=("conditions",), load=LoadKind.LIGHT))
    assert outcome.ok, outcome.violations
    assert outcome.coverage["shared records of a backlog"] >= load.batches * load.batch_records
    assert outcome.looks[LagsCountWhatIsLeft.name] > 3


def test_a_group_gets_all_committed_records(monkeypatch: pytest.MonkeyPatch) -> None:
    audits = next(
        each
        for each in (AuditLoad.draw(random.Random(number)) for number in range(100))
        if each.is_there
    )
    transactions = TransactionLoad(tellers=2, timeout_ms=1500, settings=SETTINGS)
    monkeypatch.setattr(AuditLoad, "draw", lambda _: audits)
    monkeypatch.setattr(TransactionLoad, "draw", lambda _: transactions)
    with silent():
        outcome = run(Plan(1, seconds=8, faults=("conditions",), load=LoadKind.LIGHT))
    assert outcome.ok, outcome.violations
    committed = outcome.coverage["transactions in the end"]
    assert outcome.coverage["shared records of transactions"] > committed > 0
