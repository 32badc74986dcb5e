"""Which snapshots of producers are kept within a segment."""

from __future__ import annotations

import pytest

from storage import producer_files
from storage.producer_files import ProducerFiles
from storage.producer_state import ProducerStates
from storage.replay import Replayed
from storage.snapshots import snapshot_offsets
from tests.support.batches import header_of, make_batch
from tests.support.storage import MemoryDisk


@pytest.mark.parametrize(("end_offset", "left"), [(9, [10, 20, 30]), (10, [20, 30])])
def test_the_oldest_one_goes_unless_a_truncation_has_removed_it(
    end_offset: int, left: list[int]
) -> None:
    """A snapshot at the new end is still right."""
    disk = MemoryDisk()
    files = ProducerFiles(disk, "/d")
    for offset in (10, 20, 30):
        files.begin(offset, ProducerStates(offset))
        assert files.go_on(()) is not None
        if offset == 10:
            files.truncated(end_offset)
    assert snapshot_offsets(disk, "/d") == left


@pytest.mark.parametrize(("end_offset", "is_begun"), [(9, False), (10, True)])
def test_a_snapshot_that_is_begun_above_a_cut_is_given_up(end_offset: int, is_begun: bool) -> None:
    files = ProducerFiles(MemoryDisk(), "/d")
    files.begin(10, ProducerStates(10))
    files.truncated(end_offset)
    assert files.is_begun is is_begun


def of_producers(count: int) -> ProducerStates:
    states = ProducerStates()
    for producer_id in range(count):
        states.update(header_of(make_batch(producer=(producer_id, 0, 0))), producer_id, 0)
    return states


@pytest.mark.parametrize(("producers", "due"), [(0, 10), (1, 18), (2, 26)])
def test_a_snapshot_is_written_when_there_is_enough_to_replay(
    producers: int, due: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The more producers there are, the more seldom."""
    monkeypatch.setattr(producer_files, "REPLAY_BATCHES", 10)
    files, states = ProducerFiles(MemoryDisk(), "/d"), of_producers(producers)
    for turn in range(2):
        for count in range(1, due):
            if files.appended(1, 0):
                assert count >= 10
                assert files.save_if_due(turn * due + count, states, ()) is None
        assert files.appended(1, 0)
        end = (turn + 1) * due
        assert files.save_if_due(end, states, ()) == f"/d/{end:020d}.snapshot"


def test_bytes_count_as_batches_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_files, "REPLAY_BATCHES", 10)
    files = ProducerFiles(MemoryDisk(), "/d")
    files.rebuilt(Replayed(0, 0))
    assert not files.appended(1, 8 * 4096)
    assert files.appended(0, 4096)


def test_what_was_replayed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_files, "REPLAY_BATCHES", 10)
    files = ProducerFiles(MemoryDisk(), "/d", Replayed(10, 0))
    files.rebuilt(Replayed(8, 0))
    assert not files.appended(1, 0)
    assert files.appended(1, 0)


def test_a_snapshot_of_many_producers_takes_several_appends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_files, "REPLAY_BATCHES", 1)
    files, states = ProducerFiles(MemoryDisk(), "/d"), of_producers(3000)
    files.begin(5, states)
    slices = 1
    while files.save_if_due(9, states, ()) is None:
        assert files.is_begun
        assert files.appended(0, 0)  # so it is asked again at the next append
        slices += 1
    assert slices > 2
    assert not files.is_begun
