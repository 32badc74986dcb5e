"""The log view, compared with a list of one epoch per record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.log_view import LogView
from raft.messages import EpochEnd, SnapshotId

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3), st.integers(0, 2)),
        st.tuples(st.just("truncate"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("durable"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 100), st.just(0)),
    ),
    max_size=30,
)


def twin_end(epochs: list[int], epoch: int) -> EpochEnd:
    known = [e for e in epochs if e <= epoch]
    if not known:
        return EpochEnd(0, 0)
    return EpochEnd(known[-1], len(known))


@given(STEPS)
def test_against_a_list(steps: list[tuple[str, int, int]]) -> None:
    view, epochs, durable, start = LogView(), list[int](), 0, 0
    for kind, number, step in steps:
        if kind == "append":
            epoch = max((epochs[-1] if epochs else 1) + step, 1)
            view.append(len(epochs), number, epoch)
            epochs += [epoch] * number
        elif kind == "truncate":
            offset = start + number % (len(epochs) + 1 - start)
            view.truncate_to(offset)
            del epochs[offset:]
            durable = min(durable, offset)
        elif kind == "cut":
            durable = max(durable, start)
            view.durable_to(durable)
            start += number % (durable + 1 - start)
            view.cut_before(start)
        else:
            durable = max(durable, number % (len(epochs) + 1))
            view.durable_to(durable)
        assert view.end_offset == len(epochs)
        assert view.durable_end_offset == durable
        assert view.last_epoch == (epochs[-1] if epochs else 0)
        assert view.start_offset == start
        before = max(start - 1, 0)  # the epoch of the record before the start stays known
        known = range(before, len(epochs))
        assert [view.epoch_of(offset) for offset in known] == epochs[before:]
        top = (epochs[-1] if epochs else 0) + 2
        for epoch in range(epochs[before] if start else 0, top):
            assert view.end_offset_for(epoch) == twin_end(epochs, epoch)
        for epoch in range(epochs[before] if start else 0):
            assert view.end_offset_for(epoch).end_offset < start
        again = LogView(start_offset=start, end_offset=view.end_offset, epochs=view.epochs)
        assert again.epochs == view.epochs


@given(st.tuples(st.integers(1, 3), st.integers(1, 3)), st.tuples(st.integers(0, 4), st.integers()))
def test_up_to_date_compares_epoch_first(own: tuple[int, int], other: tuple[int, int]) -> None:
    epoch, count = own
    view = LogView()
    view.append(0, count, epoch)
    assert view.is_up_to_date(*other) == (other >= (epoch, count))


def test_a_snapshot_takes_the_place_of_the_log() -> None:
    view = LogView(end_offset=4, epochs=[(2, 0)])
    view.reset_to(SnapshotId(9, 5))
    assert (view.start_offset, view.end_offset, view.durable_end_offset) == (9, 9, 9)
    assert view.last_epoch == view.epoch_of(8) == 5
    assert view.end_offset_for(5) == EpochEnd(5, 9)
    view.append(9, 1, 6)
    assert view.end_offset_for(5) == EpochEnd(5, 9)
    with pytest.raises(ValueError, match="cannot truncate"):
        view.truncate_to(8)


def test_what_does_not_follow_is_refused() -> None:
    view = LogView(end_offset=4, epochs=[(2, 0)])
    with pytest.raises(ValueError, match="cannot append"):
        view.append(5, 1, 2)
    with pytest.raises(ValueError, match="cannot append"):
        view.append(4, 1, 1)
    with pytest.raises(ValueError, match="cannot truncate"):
        view.truncate_to(5)
    with pytest.raises(ValueError, match="cannot be durable"):
        view.durable_to(5)
    with pytest.raises(ValueError, match="do not fit"):
        LogView(end_offset=4, epochs=[(2, 0), (3, 4)])


def test_epochs_that_do_not_rise_and_batches_of_nothing_are_refused() -> None:
    for epochs in ([(3, 0), (2, 1)], [(2, 0), (2, 0)]):
        with pytest.raises(ValueError, match="do not fit"):
            LogView(end_offset=4, epochs=epochs)
    with pytest.raises(ValueError, match="cannot append"):
        LogView(end_offset=4, epochs=[(2, 0)]).append(4, 0, 2)


def test_an_epoch_begins_once() -> None:
    view = LogView(end_offset=4, epochs=[(2, 0)])
    view.append(4, 1, 2)
    view.append(5, 1, 3)
    assert view.epochs == [(2, 0), (3, 5)]


def test_a_log_can_be_truncated_to_both_of_its_ends() -> None:
    view = LogView(start_offset=2, end_offset=4, epochs=[(1, 2)])
    view.truncate_to(4)
    assert (view.end_offset, view.epochs) == (4, [(1, 2)])
    view.truncate_to(2)
    assert (view.start_offset, view.end_offset, view.epochs) == (2, 2, [])


def test_a_log_is_cut_within_what_is_durable_and_keeps_the_epoch_before_the_cut() -> None:
    view = LogView(end_offset=6, epochs=[(1, 0), (2, 2), (3, 4)])
    view.append(6, 1, 3)
    for offset, epochs in (
        (0, [(1, 0), (2, 2), (3, 4)]),
        (2, [(1, 0), (2, 2), (3, 4)]),
        (4, [(2, 2), (3, 4)]),
        (6, [(3, 4)]),
    ):
        view.cut_before(offset)
        assert (view.start_offset, view.epochs) == (offset, epochs)
    for offset in (5, 7):
        with pytest.raises(ValueError, match="cannot cut"):
            view.cut_before(offset)
