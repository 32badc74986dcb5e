"""The producer snapshot files of one log: ``<offset>.snapshot``, the state as of that offset."""

from __future__ import annotations

import logging

from stele.world import Buffer
from storage.producer_state import ProducerStates, SnapshotError
from storage.segment_names import SNAPSHOT_SUFFIX, file_name, parse_file_name
from storage.steps import Steps, Turn
from world.disk import Disk, ReadFailedError

logger = logging.getLogger(__name__)


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """The offsets of the snapshots in a log's directory, in rising order."""
    keys = [parse_file_name(name) for name in disk.list(directory)]
    return [key[0] for key in keys if key is not None and key[1] == SNAPSHOT_SUFFIX]


def write_snapshot(disk: Disk, directory: str, offset: int, data: bytes) -> str:
    """Write the encoded state as of ``offset``. Returns the path, which is not synced. Raises
    OSError: then there is no file.

    The CRC reveals a torn file; then an older snapshot is used. A file that is right already is not
    written again, because a power loss could tear it then. Where the log begins there is no older
    snapshot, and nothing else knows the producers of deleted segments.
    """
    path = snapshot_path(directory, offset)
    if disk.exists(path) and disk.read_file(path) == data:
        return path
    file = disk.open(path, create=True)
    try:
        if file.size:
            file.truncate(0)
        file.append([data])
    except OSError:
        disk.remove(path)  # retention would take it for a snapshot
        raise
    finally:
        file.close()
    return path


def newest_snapshot(
    disk: Disk, directory: str, end_offset: int, *, usable_upto: int | None = None
) -> Steps[tuple[ProducerStates, int]]:
    """The newest sound snapshot that is not above ``end_offset``, and its offset. Newer ones are
    removed durably: if one came back after the log had grown past it, it would seem to be right.

    Those above ``usable_upto`` stay, and are not used."""
    found, at = ProducerStates(), 0
    removed = False
    for offset in reversed(snapshot_offsets(disk, directory)):
        path = snapshot_path(directory, offset)
        if usable_upto is not None and usable_upto < offset <= end_offset:
            continue
        if offset <= end_offset:
            try:
                found = yield from _decoded(disk.read_file(path), offset)
                at = offset
                break
            except (SnapshotError, ReadFailedError) as error:
                logger.warning("%s is not used, but an older one and the log: %s", path, error)
        disk.remove(path)
        removed = True
    if removed:
        disk.sync_now(directory)
    return found, at


def _decoded(data: Buffer, offset: int) -> Steps[ProducerStates]:
    decoding = ProducerStates.decoding(data, offset)
    while True:
        try:
            next(decoding)
        except StopIteration as end:
            states: ProducerStates = end.value
            return states
        yield Turn.OVER


def drop_snapshots_above(
    disk: Disk, directory: str, offset: int, *, but: int | None = None
) -> None:
    """Remove snapshots after a truncation, and sync. A snapshot that came back after a crash would
    describe other records than the log then has. ``but``: the offset of one that stays."""
    dropped = [o for o in snapshot_offsets(disk, directory) if o > offset and o != but]
    for above in dropped:
        disk.remove(snapshot_path(directory, above))
    if dropped:
        disk.sync_now(directory)


def drop_snapshots_below(disk: Disk, directory: str, offset: int) -> None:
    """Remove snapshots below the first segment. The directory is not synced."""
    for below in snapshot_offsets(disk, directory):
        if below < offset:
            disk.remove(snapshot_path(directory, below))
