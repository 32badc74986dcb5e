"""States have Kafka's names and values."""

from __future__ import annotations

import pytest

from broker.coordinator.transaction.types import STATES_BY_LABEL, TransactionState

KAFKA = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip


@pytest.mark.parametrize(("value", "label"), list(enumerate(KAFKA)))
def test_a_state_has_the_value_and_the_name_of_kafka(value: int, label: str) -> None:
    state = TransactionState(value)
    assert state.label == label
    assert STATES_BY_LABEL[label] is state


def test_the_outcome_is_decided_while_markers_are_written() -> None:
    prepared = [state for state in TransactionState if state.is_prepared]
    assert prepared == [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT]
