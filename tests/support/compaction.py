"""For tests of compaction: a log of small segments, rounds, and what a reader finds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from stele.ids import TopicPartition
from stele.wire.batch import BatchBuilder, Record, decode
from stele.wire.compression import Compression
from storage.compaction.request import Finished
from storage.compaction.round import Limits, compact_log
from storage.compaction.survey import survey
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.opening import open_log
from tests.support.storage import append
from tests.support.timing import HandClock
from world.disk import Disk

KEY = TopicPartition("t", 0)
DIRECTORY = "/d/t-0"
LIMITS = Limits(map_bytes=1 << 20, load_factor=0.9, bytes_per_s=1e12)
CONFIG = LogConfig(
    segment_bytes=400, index_interval_bytes=1, compact=True, delete_old=False,
    delete_retention_ms=1000,
)  # fmt: skip


def opened(
    disk: Disk, config: LogConfig = CONFIG, directory: str = DIRECTORY, **checkpoints: Any
) -> PartitionLog:
    return open_log(disk, directory, config, HandClock(), key=KEY, **checkpoints)


def write(
    log: PartitionLog,
    pairs: Iterable[tuple[bytes | None, bytes | None]],
    *,
    timestamp_ms: int = 1_000_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    compression: Compression = Compression.NONE,
    epoch: int = 0,
) -> int:
    """Append one batch; return its base offset."""
    batch = keyed_batch(
        pairs, timestamp_ms=timestamp_ms, producer=producer, compression=compression
    )
    return append(log, batch, epoch=epoch)


def filled(
    disk: Disk, count: int = 40, keys: int = 4, *, directory: str = DIRECTORY
) -> PartitionLog:
    """A log on disk with ``count`` records of few keys, whose last segment is empty."""
    log = opened(disk, directory=directory)
    for number in range(count):
        write(log, [(b"k%d" % (number % keys), b"v%d" % number)])
    roll(log)
    log.sync_now()
    return log


def keyed_batch(
    pairs: Iterable[tuple[bytes | None, bytes | None]],
    *,
    timestamp_ms: int = 1_000_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    compression: Compression = Compression.NONE,
) -> bytearray:
    builder = BatchBuilder()
    for key, value in pairs:
        builder.append(key, value, timestamp_ms=timestamp_ms, headers=(("h", b"1"),))
    return builder.build(
        compression,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )


def roll(log: PartitionLog) -> None:
    """Let everything written so far be in sealed segments."""
    config = log.config
    log.configure(LogConfig(segment_bytes=1))
    write(log, [(b"roll", b"")], epoch=max(log.latest_epoch, 0))
    log.configure(config)


def compact(
    log: PartitionLog,
    disk: Disk,
    *,
    clean_end: int = 0,
    limit: int | None = None,
    now_ms: int = 2_000_000,
    limits: Limits = LIMITS,
) -> Finished | None:
    """One round; None if nothing is cleanable."""
    return asyncio.run(compacting(log, disk, clean_end, limit, now_ms, limits))


async def compacting(
    log: PartitionLog,
    disk: Disk,
    clean_end: int = 0,
    limit: int | None = None,
    now_ms: int = 2_000_000,
    limits: Limits = LIMITS,
) -> Finished | None:
    end = log.end_offset if limit is None else limit
    found = await survey(log, clean_end, end, now_ms)
    if not found.dirty_bytes:
        return None

    async def note_dropped(dropped_end: int) -> None:
        log.dropped_end = max(log.dropped_end, dropped_end)

    return await compact_log(log, disk, found, limits, now_ms, note_dropped)


def records(log: PartitionLog, offset: int = 0) -> list[Record]:
    """What a reader finds from ``offset`` on, batches as a whole."""
    found: list[Record] = []
    for header, batch in log.batches_now(max(offset, log.start_offset)):
        got = decode(batch)
        assert len(got) == header.record_count
        found += got
    return found


def last_values(found: Iterable[Record]) -> dict[bytes | None, bytes]:
    """The dictionary that a reader has at the end."""
    values: dict[bytes | None, bytes] = {}
    for record in found:
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values
