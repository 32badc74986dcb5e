"""Aimed faults: each of them is carried out, and the true source survives it."""

import pytest

from chaos.sim.faults.aim import NAMES
from chaos.sim.faults.transaction_aims import TRANSACTION_NAMES
from chaos.sim.runs.swarm import Plan, parse_faults, run, silent
from chaos.sim.work.load import LoadKind

SEED_WITH_TRANSACTIONS = 64  # and nothing else beside the light load


@pytest.mark.parametrize("name", NAMES)
def test_an_aim_is_taken_and_survived(name: str) -> None:
    kind = f"aimed:{name}"
    with silent():
        outcome = run(Plan(1, 8.0, (kind,), load=LoadKind.LIGHT))
    assert outcome.ok, outcome.violations
    aimed = {kind: count for kind, count in outcome.faults.items() if kind.startswith("aimed")}
    assert set(aimed) == {"aimed", f"aimed: {name}"}
    assert outcome.acts == aimed["aimed"] > 0


@pytest.mark.parametrize("name", TRANSACTION_NAMES)
def test_an_aim_at_transactions_is_taken_and_survived(name: str) -> None:
    kind = f"aimed:{name}"
    with silent():
        outcome = run(Plan(SEED_WITH_TRANSACTIONS, 8.0, (kind,), load=LoadKind.LIGHT))
    assert outcome.ok, outcome.violations
    assert outcome.faults[f"aimed: {name}"] > 0
    assert outcome.coverage["transactions committed"] > 0


def test_one_aim_can_be_asked_for() -> None:
    assert parse_faults("conditions,aimed:diverge") == ("conditions", "aimed:diverge")
    with pytest.raises(ValueError, match="no kind of fault 'aimed:nothing'"):
        parse_faults("aimed:nothing")
