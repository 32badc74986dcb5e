"""The life of transactions, step by step."""

from __future__ import annotations

import pytest

from broker.coordinator.transaction.types import TransactionRef
from stele.errors import ErrorCode
from tests.support.transactions import FIRST_PRODUCER_ID, TransactionBench, partitions

NONE = ErrorCode.NONE


def after(ref: TransactionRef, *, epochs: int) -> TransactionRef:
    return ref._replace(producer_epoch=ref.producer_epoch + epochs)


def test_a_client_of_version_2_gets_an_epoch_with_every_transaction() -> None:
    bench = TransactionBench(version=2)
    ref = bench.producer()
    assert bench.state() == "Empty 0:0"
    bench.writes_markers = False
    for commit in (True, False):
        assert bench.add(ref, "a0", "b1").error is NONE
        assert bench.add(ref, "a1").error is NONE
        assert bench.state() == f"Ongoing 0:{ref.producer_epoch} a0 a1 b1"
        answer = bench.end(ref, commit=commit)
        ref = after(ref, epochs=1)
        assert (answer.error, answer.producer_id, answer.producer_epoch) == (NONE, *ref[1:])
        (due,) = bench.due
        assert due == (ref, commit, partitions("a0", "a1", "b1"), 2)
        outcome = "Commit" if commit else "Abort"
        assert bench.state() == f"Prepare{outcome} 0:{ref.producer_epoch} a0 a1 b1"
        bench.write_markers(partitions("a1"))
        assert bench.state().startswith("Prepare")
        bench.write_markers()
        assert bench.state() == f"Complete{outcome} 0:{ref.producer_epoch}"


@pytest.mark.parametrize("version", [0, 1])
def test_an_old_client_keeps_its_epoch(version: int) -> None:
    bench = TransactionBench(version=version)
    ref = bench.producer()
    bench.writes_markers = False
    for commit in (True, False):
        assert bench.add(ref, "a0").error is NONE
        answer = bench.end(ref, commit=commit)
        assert (answer.error, answer.producer_id, answer.producer_epoch) == (NONE, -1, -1)
        (due,) = bench.due
        assert due == (ref, commit, partitions("a0"), 0)
        bench.write_markers()
        assert bench.state() == f"Complete{'Commit' if commit else 'Abort'} 0:0"


def test_every_transactional_id_gets_a_producer_id() -> None:
    bench = TransactionBench()
    assert bench.producer("t").producer_id == FIRST_PRODUCER_ID
    assert bench.producer("u").producer_id == FIRST_PRODUCER_ID + 1
    assert bench.producer("t") == ("t", FIRST_PRODUCER_ID, 1)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_lasts_too_long_is_aborted(version: int) -> None:
    bench = TransactionBench(version=version)
    ref = bench.producer(transaction_timeout_ms=5_000)
    bench.add(ref, "a0")
    bench.pass_time(3_000)
    bench.add(ref, "a1")  # it does not get more time
    bench.pass_time(1_999)
    assert bench.state() == "Ongoing 0:0 a0 a1"
    bench.pass_time(1)
    assert bench.state() == "CompleteAbort 0:1"
    assert bench.end(ref).error is (
        ErrorCode.INVALID_TXN_STATE if version == 2 else ErrorCode.PRODUCER_FENCED
    )
    assert bench.add(ref, "a0").error is ErrorCode.PRODUCER_FENCED
