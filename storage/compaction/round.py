"""One round of compaction of a log that is in use."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple

from storage.cold_range import ColdRange
from storage.compaction.request import (
    Compacted,
    CompactionRequest,
    Failed,
    Finished,
    decode_answer,
)
from storage.compaction.survey import Survey
from storage.compaction.work import UncleanableError, compact
from storage.errors import StorageError, is_disk_full, is_unreadable
from storage.log import PartitionLog
from storage.swaps import encode_swap, swap_path
from storage.txn_index import AbortedTransaction
from world.disk import Disk


class AbandonedError(Exception):
    """The log was truncated, closed or cut short meanwhile. The next round begins anew."""


class Limits(NamedTuple):
    """The resources of a round."""

    map_bytes: int
    load_factor: float
    bytes_per_s: float


async def compact_log(
    log: PartitionLog,
    disk: Disk,
    found: Survey,
    limits: Limits,
    now_ms: int,
    note_dropped: Callable[[int], Awaitable[None]],
) -> Finished:
    """Compact the cleanable segments of a log, or the first of them if the map becomes full.

    Readers and writers go on meanwhile. Each compacted segment replaces its originals in one turn
    of the event loop, and is on disk before the next one. Before a replacement that lacks
    tombstones or markers, ``note_dropped`` gets the offset that they are below (see
    ``PartitionLog.dropped_end``), and returns when that is on disk. Raises AbandonedError,
    UncleanableError, StorageError, OSError: some segments may have been replaced then.
    """
    generation = log.truncation_generation
    aborted_later = await _aborted_later(log, found.segments[-1][1])
    parts = disk.carry_out(compact, *_request(log, found, limits, now_ms, aborted_later))
    async with contextlib.aclosing(parts):
        while log.offline is None and log.truncation_generation == generation:
            try:
                part = await anext(parts)
            except OSError as error:
                raise _failure(log, found, error) from error
            if log.offline is not None or log.truncation_generation != generation:
                break
            match decode_answer(*part):
                case Compacted(base_offset, end_offset, dropped_end):
                    if dropped_end:
                        await note_dropped(dropped_end)
                    if (
                        log.offline is not None
                        or log.truncation_generation != generation
                        or not _is_there(log, base_offset, end_offset)
                    ):
                        break
                    await _swap(log, disk, base_offset, end_offset)
                case Failed(reason):
                    await _end(parts)
                    raise UncleanableError(reason)
                case Finished() as finished:
                    await _end(parts)
                    return finished
    raise AbandonedError


async def _end(parts: AsyncGenerator[Any, None]) -> None:
    """Let work that has given its last answer end: the helper process of work that is closed early
    is replaced."""
    with contextlib.suppress(OSError):
        await anext(parts, None)


def _failure(log: PartitionLog, found: Survey, error: OSError) -> Exception:
    """The error to raise after one of the work."""
    if log.offline is not None:
        return AbandonedError()
    if is_unreadable(error):
        return UncleanableError(f"{error.filename} cannot be read: {error.strerror}")
    if isinstance(error, FileNotFoundError):
        is_whole = _is_there(log, found.segments[0][0], found.segments[-1][1])
        return UncleanableError(f"{error.filename} is gone") if is_whole else AbandonedError()
    return log.availability.refusal(error)


async def _aborted_later(log: PartitionLog, clean_end: int) -> list[AbortedTransaction]:
    """The aborted transactions with records below ``clean_end`` and a marker that is not."""
    while log.offline is None:
        aborted = log.transactions.aborted(clean_end, clean_end)
        if not isinstance(aborted, ColdRange):
            return aborted
        await log.warm(aborted)
    raise AbandonedError


def _request(
    log: PartitionLog,
    found: Survey,
    limits: Limits,
    now_ms: int,
    aborted_later: list[AbortedTransaction],
) -> CompactionRequest:
    config = log.config
    clean_end = found.segments[-1][1]
    return CompactionRequest(
        directory=log.directory,
        segments=found.segments,
        first_dirty=found.first_dirty,
        map_bytes=limits.map_bytes,
        load_factor=limits.load_factor,
        bytes_per_s=limits.bytes_per_s,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        kept_batches=tuple(
            batch.last_offset
            for producer in log.producers
            for batch in producer.batches
            if batch.last_offset < clean_end
        ),
        kept_markers=tuple(
            (producer.producer_id, producer.epoch)
            for producer in log.producers
            if not producer.batches
        ),
        aborted_later=tuple(
            (each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
            for each in aborted_later
        ),
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
    )


def _is_there(log: PartitionLog, base_offset: int, end_offset: int) -> bool:
    """Whether all segments from ``base_offset`` to ``end_offset`` still are: retention may have
    removed the first ones."""
    bases = log.segment_bases
    return base_offset in bases and end_offset in bases


async def _swap(log: PartitionLog, disk: Disk, base_offset: int, end_offset: int) -> None:
    path = swap_path(log.directory)
    try:
        # From the note on there is no turn of others before the files have their new names.
        disk.replace_file_now(path, encode_swap(base_offset, end_offset))
    except OSError as error:
        if is_disk_full(error):
            raise StorageError(f"{log.directory}: there is no room to compact it") from error
        raise log.availability.refusal(error) from error
    try:
        aside = log.segments.replace(base_offset, end_offset)
        log.transactions.replaced(base_offset)
        await disk.sync([log.directory])
        if log.offline is None and disk.exists(path):  # a truncation settles it itself
            disk.remove(path)
            await disk.sync([log.directory])
    except OSError as error:
        raise log.availability.failure(error) from error
    if log.offline is None:
        # An error leaves files that opening the log removes.
        with contextlib.suppress(OSError):
            await disk.discard(aside)
