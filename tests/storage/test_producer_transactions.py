"""What the state of producers knows of transactions, one rule at a time."""

from __future__ import annotations

import pytest

from stele.errors import ApiError, ErrorCode
from stele.wire.control_records import EndMarker
from storage.producer_state import NEVER, ProducerStates
from tests.support.batches import header_of, make_batch

FENCED = ErrorCode.INVALID_PRODUCER_EPOCH


def states_with(*, is_open: bool, coordinator_epoch: int = 4, epoch: int = 2) -> ProducerStates:
    """Producer 7 had a transaction, and may have another one."""
    states = ProducerStates()
    header = header_of(make_batch(1, producer=(7, epoch, 0), is_transactional=True))
    states.update(header, 10, 0)
    states.end(header, EndMarker(True, coordinator_epoch), 11, 0)
    if is_open:
        states.update(header, 12, 0)
    return states


@pytest.mark.parametrize(
    ("is_open", "epoch", "coordinator", "bumps", "error"),
    [
        (True, 1, 4, False, FENCED),
        (True, 1, 4, True, FENCED),
        (True, 2, 4, False, None),
        (True, 2, 4, True, FENCED),  # it comes late, and is of the transaction before
        (True, 3, 4, True, None),
        (True, 3, 4, False, None),
        (False, 1, 4, False, FENCED),
        (False, 2, 4, True, None),  # a repeated one ends nothing
        (False, 2, 4, False, None),
        (True, 3, 3, True, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (True, 3, 5, True, None),
    ],
)
def test_markers(
    is_open: bool, epoch: int, coordinator: int, bumps: bool, error: ErrorCode | None
) -> None:
    states = states_with(is_open=is_open)

    def refused() -> ErrorCode | None:
        try:
            states.check_marker(7, epoch, coordinator, bumps_epoch=bumps)
        except ApiError as found:
            return found.code
        return None

    assert refused() is error


def test_any_marker_of_an_unknown_producer_may_be_appended() -> None:
    states_with(is_open=True).check_marker(8, 0, 0, bumps_epoch=True)


@pytest.mark.parametrize(
    ("is_open", "producer_id", "epoch", "expected"),
    [(True, 7, 2, True), (True, 7, 1, False), (True, 8, 2, False), (False, 7, 2, False)],
)
def test_a_transaction_is_open_in_its_epoch(
    is_open: bool, producer_id: int, epoch: int, expected: bool
) -> None:
    assert states_with(is_open=is_open).is_open(producer_id, epoch) is expected


@pytest.mark.parametrize(
    ("is_open", "producer_id", "epoch", "expected"),
    [
        (True, 7, 3, True),
        (True, 7, 2, False),  # it is the open one itself
        (True, 7, 1, False),
        (False, 7, 3, False),
        (True, 8, 3, False),
    ],
)
def test_a_transaction_is_left_open_if_its_producer_has_gone_on(
    is_open: bool, producer_id: int, epoch: int, expected: bool
) -> None:
    assert states_with(is_open=is_open).is_left_open(producer_id, epoch) is expected


@pytest.mark.parametrize(("is_transactional", "is_taken"), [(True, True), (False, False)])
def test_an_open_transaction_takes_only_what_is_part_of_it(
    is_transactional: bool, is_taken: bool
) -> None:
    header = header_of(make_batch(1, producer=(7, 2, 1), is_transactional=is_transactional))
    assert states_with(is_open=False).check(header) is None
    states = states_with(is_open=True)
    if is_taken:
        assert states.check(header) is None
    else:
        with pytest.raises(ApiError) as refused:
            states.check(header)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE


def test_a_transaction_begins_with_its_first_batch() -> None:
    states = ProducerStates()
    assert states.first_open_offset == NEVER
    for offset, producer_id in ((3, 7), (4, 8), (5, 7)):
        header = header_of(make_batch(1, producer=(producer_id, 0, 0), is_transactional=True))
        states.update(header, offset, 0)
    assert states.open_transactions() == [(7, 3), (8, 4)]
    states.forget_open(7)
    assert (states.first_open_offset, states.is_open(7, 0)) == (4, False)


def test_producers_with_an_open_transaction_do_not_expire() -> None:
    states = states_with(is_open=True)
    states.update(header_of(make_batch(1, producer=(8, 0, 0))), 13, 0)
    states.expire(1_000, 1)
    assert [each.producer_id for each in states] == [7]


def test_a_snapshot_has_the_open_transactions_in_their_order() -> None:
    states = ProducerStates()
    for offset, producer_id in ((3, 9), (4, 8), (5, 7)):
        header = header_of(
            make_batch(1, producer=(producer_id, 0, 0), is_transactional=producer_id != 8)
        )
        states.update(header, offset, 0)
    again = ProducerStates.decode(states.encode())
    assert again.open_transactions() == [(9, 3), (7, 5)]
    assert again.is_open(9, 0)


def test_a_marker_that_compaction_has_emptied_ends_without_saying_how() -> None:
    states = states_with(is_open=True)
    header = header_of(make_batch(1, producer=(7, 2, -1), is_transactional=True))
    assert states.end(header, None, 13, 0) is None
    assert not states.is_open(7, 2)
    entry = states.get(7)
    assert entry is not None
    assert entry.coordinator_epoch == 4
    assert states.end(header, EndMarker(True, 5), 14, 0) is None, "it had no records here"
    entry = states.get(7)
    assert entry is not None
    assert entry.coordinator_epoch == 5
