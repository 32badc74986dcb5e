"""The note of a cut that takes several segments off a log's end.

It stands in the log's directory from before the first of them goes until the last is gone for good.
A crash in between may leave any of them. Recovery finds the note and removes the rest; without the
note it would take the missing ones for lost.

One line: the base offset of the first segment that goes.
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
    """The base offset from which on segments go; None: no cut is under way. Raises
    LogDirectoryError, OSError."""
    path = cut_path(directory)
    if not disk.exists(path):
        return None
    text = disk.read_file(path)
    if not text.endswith(b"\n") or not text[:-1].isdigit():
        raise LogDirectoryError(f"{path} does not hold an offset: {text[:40]!r}")
    return int(text)
