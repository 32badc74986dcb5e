"""What a compaction knows of transactions on its way through a log."""

from __future__ import annotations

from stele.wire.batch import BatchHeader
from stele.wire.control_records import end_marker_batch
from storage.compaction.cleaned_transactions import CleanedTransactions
from storage.txn_index import AbortedTransaction
from tests.support.batches import header_of, make_batch


def records(offset: int, producer_id: int = 7, *, is_transactional: bool = True) -> BatchHeader:
    batch = make_batch(
        base_offset=offset, producer=(producer_id, 0, 0), is_transactional=is_transactional
    )
    return header_of(batch)


def marker(offset: int, producer_id: int = 7) -> BatchHeader:
    batch = end_marker_batch(producer_id, 0, commit=True, coordinator_epoch=0, timestamp_ms=0)
    return header_of(batch)._replace(base_offset=offset)


def test_records_are_aborted_from_the_first_to_the_marker() -> None:
    transactions = CleanedTransactions([AbortedTransaction(7, 2, 5, 6)])
    assert not transactions.read(records(0))
    assert not transactions.ended(marker(1))
    assert transactions.read(records(2))
    assert not transactions.read(records(3, is_transactional=False))
    assert not transactions.read(records(3, 8))
    assert transactions.read(records(4))
    assert not transactions.ended(marker(5))
    assert not transactions.read(records(6))


def test_those_that_ended_before_the_first_batch_count_no_more() -> None:
    """The map of keys begins in the middle of the log."""
    transactions = CleanedTransactions(
        [AbortedTransaction(7, 0, 2, 3), AbortedTransaction(8, 1, 9, 10)]
    )
    assert not transactions.read(records(5))
    assert transactions.read(records(6, 8))


def test_a_marker_may_go_if_nothing_was_left_of_its_transaction() -> None:
    transactions = CleanedTransactions([])
    assert transactions.ended(marker(0))
    transactions.read(records(1))
    transactions.read(records(2, 8))
    assert not transactions.ended(marker(3))
    assert transactions.ended(marker(4))
    transactions.read(records(5, is_transactional=False))
    assert transactions.ended(marker(6))
    assert not transactions.ended(marker(7, 8))
    assert transactions.ended(marker(8, 0)), "of the first producer that there was"


def test_an_early_marker_does_not_end_a_later_transaction() -> None:
    transactions = CleanedTransactions([AbortedTransaction(7, 1, 3, 4)])
    assert transactions.ended(marker(0))
    assert transactions.read(records(1))


def test_other_control_batches_stay() -> None:
    assert not CleanedTransactions([]).ended(marker(0, -1))
