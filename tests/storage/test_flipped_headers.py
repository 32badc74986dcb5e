"""A bit of a header that has changed on disk is found out as corruption, wherever it is met.

Any other error would cost the log until the next start, and the replica would not be fetched again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest

from stele.wire.batch import HEADER_SIZE
from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from tests.support.batches import make_batch
from tests.support.partition_log import open_log
from tests.support.storage import MemoryDisk, append

SIZE: Final = len(make_batch(producer=(7, 0, 0)))
COUNT: Final = 6
FIRST: Final = f"/d/t-0/{0:020d}.log"
LENGTH, MAGIC = 11, 16
"""Where a header has the last byte of its length, and its magic."""
DENSE = LogConfig(index_interval_bytes=1)


def flipped(batch: int, bit: int) -> MemoryDisk:
    """A log with index files, of which one bit of one batch's header has changed."""
    disk = MemoryDisk()
    log = open_log(disk, DENSE)
    for number in range(COUNT):
        append(log, make_batch(producer=(7, 0, number)))
    log.prepare_clean_shutdown()
    log.sync_now()
    log.close()
    disk.inodes[FIRST].data[batch * SIZE + bit // 8] ^= 1 << bit % 8
    return disk


def opened(disk: MemoryDisk, clean: bool) -> PartitionLog:
    """All of it was on disk and committed, so an opening looks at little."""
    return open_log(
        disk,
        DENSE,
        recovery_point=COUNT,
        high_watermark_checkpoint=COUNT,
        clean_shutdown=clean,
    )


def cut(log: PartitionLog) -> None:
    log.truncate_to(COUNT - 2)


def read(log: PartitionLog) -> None:
    for offset in reversed(range(COUNT)):
        log.read(offset, 1)


@pytest.mark.parametrize("batch", [0, COUNT - 2, COUNT - 1])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("use", [cut, read])
def test_a_changed_header_is_corruption(
    batch: int, clean: bool, use: Callable[[PartitionLog], None]
) -> None:
    for bit in range(HEADER_SIZE * 8):
        with suppress(CorruptLogError):
            use(opened(flipped(batch, bit), clean))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("batch", [0, COUNT - 1])
def test_the_corrupt_place_is_named(batch: int, clean: bool) -> None:
    with pytest.raises(CorruptLogError, match=rf"at byte {batch * SIZE} \(offset {batch}\)"):
        opened(flipped(batch, MAGIC * 8), clean)


def test_a_damaged_length_where_the_index_leads_is_named() -> None:
    disk = flipped(COUNT - 1, LENGTH * 8 + 4)
    with pytest.raises(CorruptLogError, match=rf"at byte {(COUNT - 1) * SIZE} \(offset 5\)"):
        opened(disk, clean=False)
