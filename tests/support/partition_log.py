"""A log of one partition in memory, for tests of it."""

from __future__ import annotations

import asyncio
from typing import Any

from stele.ids import TopicPartition
from stele.wire.batch import batches
from storage import opening
from storage.config import LogConfig
from storage.log import PartitionLog
from tests.support.storage import MemoryDisk
from tests.support.timing import HandClock

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)


KEY = TopicPartition("t", 0)


def open_log(disk: MemoryDisk, config: LogConfig = SMALL, **checkpoints: Any) -> PartitionLog:
    return opening.open_log(disk, "/d/t-0", config, HandClock(), key=KEY, **checkpoints)


def offsets_in(
    log: PartitionLog, offset: int, max_bytes: int = 1 << 20, **kwargs: Any
) -> list[int]:
    """The base offsets of the batches of one read."""
    result = log.read(offset, max_bytes, **kwargs)
    if result.cold is not None:
        assert result.cold.size == 0, "only indexes that are made anew"
        asyncio.run(log.warm(result.cold))
        result = log.read(offset, max_bytes, **kwargs)
    return [header.base_offset for _, header in batches(result.data)]


def read_all(log: PartitionLog) -> list[int]:
    return [header.base_offset for header, _ in log.batches_now(log.start_offset)]
