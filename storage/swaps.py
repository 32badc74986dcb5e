"""Putting a compacted segment into the place of the segments that it was made of.

The compacted segment has the base offset of the first of them, and its files have the suffix
``.cleaned`` until it takes their place. A note, ``swap-under-way``, says which segments they are.
It is in the log's directory from before the first file is renamed until all renames are on disk. A
crash in between may leave any of the renames done. Then recovery finds the note and does the rest,
so it ends in the new segments. Without a note it removes the files of the compaction.

Kafka has no note. It renames the files to ``.swap`` instead and relies on the order of renames on
disk, which no file system promises.

The note has one line: the base offset, and the end offset, which is the base of the next segment.

Only one swap of a log is under way at a time. Truncations settle it first, because recovery would
otherwise bring truncated records back.
"""

from __future__ import annotations

import logging
from typing import Final

from storage.errors import LogDirectoryError
from storage.segment_names import (
    CLEANED_SUFFIX,
    SNAPSHOT_SUFFIX,
    parse_file_name,
    segment_paths,
    txn_index_path,
)
from world.disk import Disk

logger = logging.getLogger(__name__)

SWAP_FILE: Final = "swap-under-way"


def swap_path(directory: str) -> str:
    return f"{directory}/{SWAP_FILE}"


def encode_swap(base_offset: int, end_offset: int) -> bytes:
    return b"%d %d\n" % (base_offset, end_offset)


def _read_swap(disk: Disk, directory: str) -> tuple[int, int] | None:
    """Base and end offset of the swap that is under way; None if there is none. Raises
    LogDirectoryError if the note is malformed, OSError."""
    path = swap_path(directory)
    if not disk.exists(path):
        return None
    text = disk.read_file(path)
    fields = text.split()
    if not text.endswith(b"\n") or len(fields) != 2 or not all(map(bytes.isdigit, fields)):
        raise LogDirectoryError(f"{path} does not hold two offsets: {text[:40]!r}")
    return int(fields[0]), int(fields[1])


def settle_swap(disk: Disk, directory: str) -> None:
    """End the swap that is under way, if there is one, now and durably. Its renames were made, and
    only have to reach the disk. Raises OSError."""
    if disk.exists(swap_path(directory)):
        disk.sync_now(directory)
        disk.remove(swap_path(directory))
        disk.sync_now(directory)


def finish_swap(disk: Disk, directory: str) -> None:
    """At opening: complete the swap that was under way when the process ended. Compacted segments
    that are left then are incomplete. Raises LogDirectoryError, OSError."""
    swap = _read_swap(disk, directory)
    if swap is None:
        return
    logger.warning("%s: going on with a swap of the segments from %d to %d", directory, *swap)
    _put_in_place(disk, directory, *swap)
    disk.sync_now(directory)
    disk.remove(swap_path(directory))
    disk.sync_now(directory)


def _put_in_place(disk: Disk, directory: str, base_offset: int, end_offset: int) -> None:
    for name in disk.list(directory):
        key = parse_file_name(name)
        if key is not None and base_offset < key[0] < end_offset and key[1] != SNAPSHOT_SUFFIX:
            disk.remove(f"{directory}/{name}")
    cleaned = (
        *segment_paths(directory, base_offset, CLEANED_SUFFIX),
        txn_index_path(directory, base_offset, CLEANED_SUFFIX),
    )
    paths = (*segment_paths(directory, base_offset), txn_index_path(directory, base_offset))
    # Each rename replaces the old file. A file that is not there was renamed before. There is a
    # compacted transaction index, perhaps an empty one, if any of the old segments has one.
    for source, target in zip(cleaned, paths, strict=True):
        if disk.exists(source):
            disk.rename(source, target)
