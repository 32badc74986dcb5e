"""What a reader remembers of leader epochs, beside logs that remember everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stele.consumer.epochs import MAX_EPOCHS, EpochHistory
from storage.leader_epochs import LeaderEpochs

Log = list[int]
"""The epoch of each record, by offset. Epochs never fall."""

_rising = st.lists(st.integers(0, 9), max_size=8).map(sorted)


def end_of_epoch(log: Log, epoch: int) -> tuple[int, int]:
    """The answer of a leader, by the epochs of its records."""
    epochs = LeaderEpochs()
    for offset, each in enumerate(log):
        epochs.assign(each, offset)
    return epochs.end_offset_for(epoch, len(log))


def read_of(log: Log, start: int) -> EpochHistory:
    history = EpochHistory()
    for offset in range(start, len(log)):
        history.note(log[offset], offset)
    return history


@st.composite
def diverging_logs(draw: st.DrawFn) -> tuple[Log, Log, int]:
    """Two logs and the length of what they share. After that they have no epoch in common, but that
    of the last shared record, which only one of them goes on with."""
    shared = draw(_rising)
    least = shared[-1] if shared else 0
    split = {epoch: draw(st.booleans()) for epoch in range(least, least + 6)}
    one = draw(st.lists(st.sampled_from([e for e in split if split[e]] or [least + 7]), max_size=8))
    other = draw(
        st.lists(st.sampled_from([e for e in split if not split[e]] or [least + 7]), max_size=8)
    )
    if one and other and one[0] == other[0] == least + 7:
        other = []
    return shared + sorted(one), [*shared, *sorted(other), least + 8], len(shared)


@given(logs=diverging_logs(), start=st.integers(0, 8))
def test_the_reader_goes_back_to_what_both_logs_have(
    logs: tuple[Log, Log, int], start: int
) -> None:
    read, leaders, shared = logs
    start = min(start, len(read))
    history, offset = read_of(read, start), len(read)
    while (last := history.epoch_below(offset)) >= 0:
        epoch, end = end_of_epoch(leaders, last)
        if epoch == last and end >= offset:
            break
        if epoch < 0:
            return  # there is nothing left to agree on: out of range
        before = offset
        offset = min(offset, history.diverged(epoch, end))
        assert offset < before or history.epoch_below(offset) < last
    assert offset >= min(shared, start)
    if shared >= start:
        assert offset == shared
    else:
        assert offset <= start or read[start:offset] == leaders[start:offset]


@given(log=_rising, start=st.integers(0, 8), cut=st.integers(0, 10))
def test_the_epoch_below_an_offset_is_the_epoch_of_the_record_before(
    log: Log, start: int, cut: int
) -> None:
    history = read_of(log, start)
    history.cut(cut)
    for offset in range(start + 1, min(cut, len(log)) + 1):
        assert history.epoch_below(offset) == log[offset - 1]
    assert history.epoch_below(start) == -1


def test_an_epoch_that_was_given_counts_below_what_was_read() -> None:
    history = EpochHistory()
    history.begin(4)
    history.note(6, 10)
    assert (history.epoch_below(10), history.epoch_below(11)) == (4, 6)
    assert history.diverged(5, 12) == 10
    assert history.epoch_below(10) == 4
    assert history.diverged(3, 12) == 12
    assert history.epoch_below(10) == 3
    history.begin()
    assert history.epoch_below(10) == -1


def test_an_epoch_that_was_given_and_cannot_be_right_does_not_count() -> None:
    history = EpochHistory()
    history.begin(4)
    history.note(3, 10)
    assert (history.epoch_below(10), history.epoch_below(11)) == (-1, 3)
    history.note(2, 11)
    assert history.epoch_below(12) == 3


def test_an_epoch_is_remembered_once_however_many_records_it_has() -> None:
    history = EpochHistory()
    history.note(1, 0)
    for offset in range(10, 10 + 2 * MAX_EPOCHS):
        history.note(2, offset)
    assert [history.epoch_below(offset) for offset in (0, 1, 10, 11)] == [-1, 1, 1, 2]


def test_a_bounded_number_of_epochs_is_remembered() -> None:
    history = EpochHistory()
    for epoch in range(3 * MAX_EPOCHS):
        history.note(epoch, 10 * epoch)
    first = 2 * MAX_EPOCHS
    assert history.epoch_below(10 * first) == first - 1
    assert history.epoch_below(5) == first - 1
    assert history.epoch_below(10 * first + 1) == first
