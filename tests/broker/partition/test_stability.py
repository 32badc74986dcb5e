"""Which ended transactions hold the last stable offset back."""

from __future__ import annotations

from broker.partition.stability import Undecided

END = 100  # of the log; no transaction is open


def after(*ended: tuple[int, int]) -> Undecided:
    """Transactions by the offsets of their first record and of their marker."""
    undecided = Undecided()
    for each in ended:
        undecided.add(*each)
    return undecided


def test_a_marker_counts_once_it_is_below_the_high_watermark() -> None:
    undecided = after((2, 5))
    assert undecided.first_offset(5, END) == 2
    assert undecided.first_offset(6, END) == END
    assert not undecided.ended


def test_an_open_transaction_before_it_counts_first() -> None:
    assert after((2, 5)).first_offset(0, 1) == 1
    assert after((2, 5)).first_offset(0, 3) == 2


def test_each_counts_until_its_own_marker_is_committed() -> None:
    undecided = after((0, 5), (3, 6))
    assert undecided.first_offset(5, END) == 0
    assert undecided.first_offset(6, END) == 3
    assert undecided.first_offset(7, END) == END


def test_one_that_began_later_and_ended_earlier_never_counts() -> None:
    undecided = after((3, 5), (0, 6), (7, 8))
    assert [each.first_offset for each in undecided.ended] == [0, 7]
    assert undecided.first_offset(6, END) == 0
    assert undecided.first_offset(7, END) == 7


def test_a_truncation_forgets_markers_that_are_gone() -> None:
    undecided = after((0, 5), (3, 6), (7, 8))
    undecided.truncated(9)
    assert len(undecided.ended) == 3
    undecided.truncated(6)
    assert [each.marker_offset for each in undecided.ended] == [5]
    undecided.truncated(0)
    assert undecided.first_offset(0, END) == END
