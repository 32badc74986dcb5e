"""Reads of one log: bytes that are in memory at once, and bytes that must be warmed first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from stele.errors import ApiError, ErrorCode
from stele.wire.batch import BatchHeader, batches
from stele.world import Buffer
from storage.cold_range import ColdRange
from storage.errors import UnreadableLogError, is_unreadable
from storage.log_types import LogView, ReadResult
from storage.reindex import reindex
from world.disk import Disk


class LogReader:
    """The reads of one log. ``PartitionLog`` describes the methods under the same names."""

    __slots__ = ("_disk", "_log", "_reindexing")

    def __init__(self, log: LogView, disk: Disk) -> None:
        self._log = log
        self._disk = disk
        self._reindexing = asyncio.Lock()
        """Held while a segment's indexes are rebuilt, so that they are rebuilt once."""

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        limit_offset: int | None = None,
        min_one_batch: bool = True,
    ) -> ReadResult:
        log = self._log
        log.availability.check()
        end = log.end_offset
        if not log.start_offset <= offset <= end:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{log.name} holds {log.start_offset} to {end}, not {offset}",
            )
        limit = end if limit_offset is None else min(limit_offset, end)
        if offset >= limit:
            return ReadResult(b"", offset)
        segment, position = log.segments.place_of(offset)
        try:
            found = segment.read(
                offset,
                max_bytes,
                limit_offset=limit,
                min_one_batch=min_one_batch,
                position=position,
            )
        except OSError as error:
            raise log.availability.unread(error, segment.path, position or 0, offset) from error
        if isinstance(found, ColdRange):
            return ReadResult(b"", offset, found)
        log.segments.remember(segment, found)
        return ReadResult(found.data, found.next_offset)

    def readable_bytes(self, offset: int, limit_offset: int) -> int | None:
        log = self._log
        log.availability.check()
        if offset >= limit_offset:
            return 0
        segment, position = log.segments.place_of(offset)
        if segment is not log.segments.active:
            return None
        try:
            first = segment.locate(offset) if position is None else position
            if limit_offset >= log.end_offset:
                last: int | ColdRange = segment.size
            else:
                last = segment.locate(limit_offset)
        except OSError as error:
            raise log.availability.unread(error, segment.path, position or 0, offset) from error
        if isinstance(first, ColdRange) or isinstance(last, ColdRange):
            return None
        return last - first

    def batches_now(self, offset: int) -> Iterator[tuple[BatchHeader, Buffer]]:
        log = self._log
        while offset < log.end_offset:
            result = self.read(offset, 1 << 20)
            if result.cold is not None:
                log.segments.place_of(offset)[0].warm_now(result.cold)
                continue
            view = memoryview(result.data)
            for at, header in batches(view):
                yield header, view[at : at + header.size_bytes]
            offset = result.next_offset

    async def warm(self, cold: ColdRange) -> None:
        log = self._log
        try:
            if cold.size == 0:
                async with self._reindexing:
                    await reindex(log, cold.path)
            else:
                await self._disk.warm(*cold)
        except FileNotFoundError as error:
            # A lost index is noticed when it is read again.
            if log.offline is None and any(cold.path == each.path for each in log.segments):
                raise UnreadableLogError(
                    cold.path, position=cold.position, offset=-1, reason="it is gone"
                ) from error
        except OSError as error:
            if is_unreadable(error) and self._lose_indexes(cold.path):
                return
            raise log.availability.unread(error, cold.path, cold.position, -1) from error

    def _lose_indexes(self, path: str) -> bool:
        """Whether ``path`` is the file of an index. If so, the index will be rebuilt from the
        segment."""
        segment = next((each for each in self._log.segments if path in each.index_paths()), None)
        if segment is not None:
            segment.lose_indexes()
        return segment is not None
