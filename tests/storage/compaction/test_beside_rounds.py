"""Searches and copies of a log in which a round of compaction replaces segments meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from storage.copying import Copying, CopyStep
from storage.log import PartitionLog
from tests.support.compaction import compact, compacting, filled, opened, roll, write
from tests.support.storage import MemoryDisk
from tests.support.worlds import virtual


class Overtaking(MemoryDisk):
    """While the first search waits for the device, something else happens."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def warm(self, path: str, position: int, size: int) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        await super().warm(path, position, size)


def reopened() -> tuple[Overtaking, PartitionLog]:
    """A log of which nothing is in memory. A round leaves its first record and its last ones."""
    disk = Overtaking()
    log = opened(disk)
    write(log, [(b"first", b"")], timestamp_ms=2_000_000)
    for number in range(40):
        write(log, [(b"k%d" % (number % 4), b"v")], timestamp_ms=2_000_001 + number)
    roll(log)
    end = log.end_offset
    log.prepare_clean_shutdown()
    log.sync_now()
    log.close()
    log = opened(disk, recovery_point=end, high_watermark_checkpoint=end, clean_shutdown=True)
    disk.cold = True
    disk.meanwhile = lambda: compacting(log, disk)
    return disk, log


@virtual
async def test_a_search_by_time_that_a_round_overtakes_finds_the_record() -> None:
    disk, log = reopened()
    found = await log.offset_for_timestamp(2_000_000)
    assert disk.meanwhile is None
    assert len(log.segment_bases) == 3, "it was compacted"
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (0, 2_000_000)


@virtual
async def test_a_search_for_the_newest_record_that_a_round_overtakes_finds_it() -> None:
    disk, log = reopened()
    found = await log.max_timestamp_offset()
    assert disk.meanwhile is None
    assert len(log.segment_bases) == 3, "it was compacted"
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (40, 2_000_040)


def test_a_copy_of_a_log_that_was_compacted_begins_anew() -> None:
    """The copy may have a record whose tombstone is gone from the log together with it."""
    disk = MemoryDisk()
    log = filled(disk)
    copying = Copying(log, opened(disk, directory="/d/copy"))
    copying.advance()
    steps = [copying.step]
    compact(log, disk)
    assert [*steps, copying.step] == [CopyStep.FILL, CopyStep.BEGIN_ANEW]
