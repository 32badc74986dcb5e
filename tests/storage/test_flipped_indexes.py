"""One flipped bit in a file that can be made anew costs nothing."""

from __future__ import annotations

import pytest

from stele.ids import TopicPartition
from stele.wire.batch import batches
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.opening import open_log
from storage.time_search import largest_timestamp
from storage.txn_index import AbortedTransaction, WrongTxnIndexError, decode_aborted, encode_aborted
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append
from tests.support.timing import HandClock

PATH = "/d/t-0"
COUNT = 14
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=100)


def opened(disk: MemoryDisk) -> PartitionLog:
    key = TopicPartition("t", 0)
    return open_log(
        disk, PATH, CONFIG, HandClock(), key=key, recovery_point=COUNT, clean_shutdown=True
    )


def closed_cleanly() -> MemoryDisk:
    disk = MemoryDisk()
    log = open_log(disk, PATH, CONFIG, HandClock(), key=TopicPartition("t", 0))
    for number in range(COUNT):
        append(log, make_batch(1, size=100, timestamp_ms=1000 + number))
    log.prepare_clean_shutdown()
    log.sync_now()
    log.close()
    return disk


def index_paths(suffix: str) -> list[str]:
    """Those of a sealed segment and of the active one."""
    names = [name for name in closed_cleanly().list(PATH) if name.endswith(suffix)]
    assert len(names) == 2
    return [f"{PATH}/{name}" for name in names]


async def first_offset(log: PartitionLog, offset: int, limit: int) -> int:
    """The offset of the first batch that a reader at ``offset`` gets."""
    while True:
        result = log.read(offset, limit)
        if result.cold is None:
            return next(header.base_offset for _, header in batches(result.data))
        await log.warm(result.cold)


@pytest.mark.parametrize("path", index_paths(".index"))
async def test_every_offset_is_found_whatever_bit_is_flipped(path: str) -> None:
    size = len(closed_cleanly().read_file(path))
    assert size >= 16
    for bit in range(size * 8):
        disk = closed_cleanly()
        disk.inodes[path].data[bit // 8] ^= 1 << bit % 8
        log = opened(disk)
        for offset in reversed(range(COUNT)):
            assert await first_offset(log, offset, 300 + offset % 2 * 200) == offset
        log.close()


@pytest.mark.parametrize("path", index_paths(".index"))
async def test_a_truncation_leaves_a_right_index_whatever_bit_is_flipped(path: str) -> None:
    for bit in range(len(closed_cleanly().read_file(path)) * 8):
        disk = closed_cleanly()
        disk.inodes[path].data[bit // 8] ^= 1 << bit % 8
        log = opened(disk)
        end_offset = log.segments.bases[-1] + 2
        log.truncate_to(end_offset)
        assert append(log, make_batch(1)) == end_offset
        for offset in reversed(range(end_offset + 1)):
            assert await first_offset(log, offset, 300) == offset
        log.close()


@pytest.mark.parametrize("path", index_paths(".timeindex"))
async def test_a_flipped_sign_in_a_time_index_is_not_believed(path: str) -> None:
    entries = len(closed_cleanly().read_file(path)) // 12
    assert entries >= 2
    for position in [12 * entry + field for entry in range(entries) for field in (0, 8)]:
        disk = closed_cleanly()
        disk.inodes[path].data[position] ^= 0x80
        log = opened(disk)
        newest = [await largest_timestamp(log, segment) for segment in log.segments.all()]
        assert newest == [1000 + segment.end_offset - 1 for segment in log.segments]
        for offset in range(COUNT):
            found = await log.offset_for_timestamp(1000 + offset)
            assert found is not None
            assert found.offset == offset
        log.close()


def test_an_impossible_entry_of_a_transaction_index_is_not_believed() -> None:
    entry = AbortedTransaction(7, 3, 9, 10)
    assert decode_aborted(encode_aborted([entry])) == [entry]
    for wrong in (
        entry._replace(last_stable_offset=11),
        entry._replace(last_stable_offset=-1),
        entry._replace(producer_id=-7),
        entry._replace(first_offset=-3),
    ):
        with pytest.raises(WrongTxnIndexError):
            decode_aborted(encode_aborted([wrong]))
