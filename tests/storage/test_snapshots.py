"""The files of producer snapshots."""

from __future__ import annotations

import pytest

from storage.producer_state import ProducerStates
from storage.snapshots import (
    drop_snapshots_above,
    drop_snapshots_below,
    newest_snapshot,
    snapshot_offsets,
    snapshot_path,
    write_snapshot,
)
from storage.steps import finish
from tests.support.batches import header_of, make_batch
from tests.support.storage import MemoryDisk, MemoryFile

LOG = "/d"


def with_snapshots(*offsets: int) -> MemoryDisk:
    """The snapshot at an offset knows one producer, which has the offset as its id."""
    disk = MemoryDisk()
    for offset in offsets:
        states = ProducerStates()
        states.update(header_of(make_batch(producer=(offset, 0, 0))), offset - 1, 0)
        write_snapshot(disk, LOG, offset, states.encode())
    disk.replace_file_now(f"{LOG}/{0:020d}.log", b"")
    disk.replace_file_now(f"{LOG}/partition.metadata", b"")
    return disk


def test_a_snapshot_that_is_right_already_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log without new records has the same one at each end of its process. A power loss could
    tear it while it is written, and no older one knows the producers of deleted segments."""
    disk = MemoryDisk()
    disk.make_directory("/t-0")
    path = write_snapshot(disk, "/t-0", 7, b"state")
    assert path == snapshot_path("/t-0", 7)
    with monkeypatch.context() as patch:
        patch.delattr(MemoryFile, "append")
        assert write_snapshot(disk, "/t-0", 7, b"state") == path
    write_snapshot(disk, "/t-0", 7, b"later")
    assert disk.read_file(path) == b"later"


@pytest.mark.parametrize(
    ("end_offset", "usable_upto", "found", "left"),
    [
        (30, None, 30, [10, 20, 30]),
        (29, None, 20, [10, 20]),
        (9, None, 0, []),
        (30, 20, 20, [10, 20, 30]),
        (30, 19, 10, [10, 20, 30]),
        (29, 19, 10, [10, 20]),
    ],
)
def test_the_newest_snapshot_within_the_log_is_used(
    end_offset: int, usable_upto: int | None, found: int, left: list[int]
) -> None:
    """Those above the log's end go. If the log grew past one that came back, the snapshot would
    seem to be right."""
    disk = with_snapshots(10, 20, 30)
    states, at = finish(disk, newest_snapshot(disk, LOG, end_offset, usable_upto=usable_upto))
    assert at == found
    assert [each for each in (10, 20, 30) if states.get(each) is not None] == [found] * bool(found)
    assert snapshot_offsets(disk, LOG) == left
    if found != 30 and usable_upto is None:
        disk.power_loss()
        assert not {each for each in snapshot_offsets(disk, LOG) if each > end_offset}


def test_a_torn_snapshot_gives_way_to_an_older_one() -> None:
    disk = with_snapshots(10, 20)
    del disk.inodes[snapshot_path(LOG, 20)].data[-1:]
    _, at = finish(disk, newest_snapshot(disk, LOG, 20))
    assert at == 10
    assert snapshot_offsets(disk, LOG) == [10]


@pytest.mark.parametrize(
    ("offset", "but", "left"),
    [(20, None, [10, 20]), (-1, 20, [20]), (10, 30, [10, 30]), (30, None, [10, 20, 30])],
)
def test_a_truncation_removes_the_snapshots_above_the_new_end(
    offset: int, but: int | None, left: list[int]
) -> None:
    """The snapshot at the end still describes the log. So does one that was written for a log that
    begins anew there."""
    disk = with_snapshots(10, 20, 30)
    drop_snapshots_above(disk, LOG, offset, but=but)
    assert snapshot_offsets(disk, LOG) == left
    if left != [10, 20, 30]:
        disk.power_loss()
        assert {*snapshot_offsets(disk, LOG)} == {*left}


def test_the_snapshot_where_the_log_begins_stays() -> None:
    disk = with_snapshots(10, 20, 30)
    drop_snapshots_below(disk, LOG, 20)
    assert snapshot_offsets(disk, LOG) == [20, 30]
    assert disk.exists(f"{LOG}/{0:020d}.log")
