"""Transactional producers and readers of committed records in a cluster where little goes wrong."""

from __future__ import annotations

import pytest

from chaos.sim.laws.atomic_transactions import TransactionsAreAtomic
from chaos.sim.laws.coordinator_logs import CoordinatorsReplayTheirLogs
from chaos.sim.laws.fenced_producers import FencedProducersWriteNothing
from chaos.sim.laws.generations import PartitionsHaveOneOwner
from chaos.sim.laws.log_transactions import LogsKnowTheirTransactions
from chaos.sim.laws.markers import MarkersFollowDecisions
from chaos.sim.laws.stable_offsets import LastStableOffsetsOnlyRise
from chaos.sim.runs.swarm import Plan, run, silent
from chaos.sim.work.load import LoadKind
from chaos.sim.work.transaction_work import SETTINGS, TransactionLoad

TRANSACTIONS = TransactionLoad(
    tellers=3,
    old_tellers=1,
    two_phase_tellers=1,
    copiers=2,
    passers=1,
    watchers=2,
    pause_s=0.1,
    timeout_ms=1500,
    segment_bytes=1500,
    settings=SETTINGS,
)


def test_transactional_producers_do_all_that_they_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionLoad, "draw", lambda _: TRANSACTIONS)
    with silent():
        outcome = run(Plan(2, seconds=12, faults=("conditions",), load=LoadKind.LIGHT))
    assert outcome.ok, outcome.violations
    for what in (
        "committed records seen",
        "offsets in transactions",
        "prepared transactions finished by others",
        "transactional producers died",
        "transactional producers stood still",
        "transactions aborted",
        "transactions committed",
        "transactions in the end",
        "transactions left open",
        "twins refused",
    ):
        assert outcome.coverage.get(what, 0) > 0, what
    for law in (
        CoordinatorsReplayTheirLogs,
        LastStableOffsetsOnlyRise,
        LogsKnowTheirTransactions,
        MarkersFollowDecisions,
        TransactionsAreAtomic,
    ):
        assert outcome.looks[law.name] > 100, law
    assert outcome.looks[PartitionsHaveOneOwner.name] > 1
    assert outcome.looks[FencedProducersWriteNothing.name] > 3
