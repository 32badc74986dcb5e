"""Which snapshots of producers are kept within a segment."""

from __future__ import annotations

import pytest

from storage.producer_files import ProducerFiles
from storage.producer_state import ProducerStates
from storage.snapshots import snapshot_offsets
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
