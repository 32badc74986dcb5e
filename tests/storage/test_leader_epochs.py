"""The leader epoch cache in the cases of KIP-101, KIP-279 and KIP-320."""

import pytest

from storage.checkpoints import encode_epochs, read_epochs
from storage.errors import LogDirectoryError
from storage.leader_epochs import EpochEndOffset, LeaderEpochs
from tests.support.storage import MemoryDisk

UNKNOWN = EpochEndOffset(-1, -1)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (-1, UNKNOWN),
        (1, EpochEndOffset(1, 10)),  # older than all that is known: ends where the first begins
        (2, EpochEndOffset(2, 30)),
        (3, EpochEndOffset(2, 30)),  # never led here: the one before
        (4, EpochEndOffset(4, 50)),
        (7, EpochEndOffset(7, 99)),  # the latest ends with the log
        (8, UNKNOWN),
    ],
)
def test_end_offset_for(asked: int, expected: EpochEndOffset) -> None:
    epochs = LeaderEpochs([(2, 10), (4, 30), (7, 50)])
    assert epochs.end_offset_for(asked, 99) == expected


def test_nothing_is_known_of_an_empty_log() -> None:
    assert LeaderEpochs().end_offset_for(0, 0) == UNKNOWN


def test_epoch_zero_is_an_epoch() -> None:
    assert LeaderEpochs([(0, 0), (1, 5)]).end_offset_for(0, 9) == EpochEndOffset(0, 5)


def test_only_news_has_to_be_written() -> None:
    epochs = LeaderEpochs([(2, 10), (4, 30)])
    epochs.assign(4, 40)
    epochs.advance_start(10)
    assert (epochs.entries, epochs.dirty) == ([(2, 10), (4, 30)], False)
    epochs.advance_start(30)
    assert (epochs.entries, epochs.dirty) == ([(4, 30)], True)


def test_an_epoch_without_records_gives_way() -> None:
    epochs = LeaderEpochs([(2, 10), (4, 30)])
    epochs.assign(6, 30)
    assert epochs.entries == [(2, 10), (6, 30)]
    epochs.assign(5, 40)  # older than the latest: no news
    assert epochs.entries == [(2, 10), (6, 30)]


def test_truncating_forgets_epochs_from_the_new_end_on() -> None:
    epochs = LeaderEpochs([(2, 10), (4, 30), (7, 50)])
    epochs.truncate_from(31)
    assert epochs.entries == [(2, 10), (4, 30)]
    assert epochs.dirty
    epochs.truncate_from(30)
    assert epochs.entries == [(2, 10)]
    assert epochs.epoch_for(9) == -1
    assert epochs.epoch_for(12) == 2


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (5, [(2, 10), (4, 30), (7, 50)]),
        (10, [(2, 10), (4, 30), (7, 50)]),
        (11, [(2, 11), (4, 30), (7, 50)]),
        (30, [(4, 30), (7, 50)]),
        (60, [(7, 60)]),
    ],
)
def test_a_later_start_drops_epochs_below(start: int, entries: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs([(2, 10), (4, 30), (7, 50)])
    epochs.advance_start(start)
    assert epochs.entries == entries


def test_the_file_is_kafkas_text() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    data = encode_epochs([(2, 10), (4, 30)])
    assert data == b"0\n2\n2 10\n4 30\n"
    disk.replace_file_now("/d/f", data)
    assert read_epochs(disk, "/d/f") == [(2, 10), (4, 30)]
    assert read_epochs(disk, "/d/none") == []


@pytest.mark.parametrize(
    "data", [b"", b"1\n0\n", b"0\n2\n1 1\n", b"0\n1\nx y\n", b"0\n1\n1\n", b"\xff"]
)
def test_a_malformed_file_is_not_believed(data: bytes) -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.replace_file_now("/d/f", data)
    with pytest.raises(LogDirectoryError, match="/d/f is malformed"):
        read_epochs(disk, "/d/f")
