"""The note of a truncation that removes several segments.

It is in the log's directory from before the first segment is removed until all removals are on
disk. A crash in between may leave any of the segments. Recovery finds the note and removes the
rest. Without the note it would take the removed segments for lost ones.

The note has one line: the base offset of the first segment that is removed.
"""

from __future__ import annotations

from typing import Final

from storage.errors import LogDirectoryError
from world.disk import Disk

CUT_FILE: Final = "cut-under-way"


def cut_path(directory: str) -> str:
    return f"{directory}/{CUT_FILE}"


def encode_cut(base_offset: int) -> bytes:
    return b"%d\n" % base_offset


def read_cut(disk: Disk, directory: str) -> int | None:
    """Segments with this base offset or a higher one are being removed. None if no cut is under
    way. Raises LogDirectoryError if the note is malformed, OSError."""
    path = cut_path(directory)
    if not disk.exists(path):
        return None
    text = disk.read_file(path)
    if not text.endswith(b"\n") or not text[:-1].isdigit():
        raise LogDirectoryError(f"{path} does not hold an offset: {text[:40]!r}")
    return int(text)
