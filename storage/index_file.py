"""Writes new entries of an index to its file."""

from __future__ import annotations

from world.disk import Disk


def write_entries(disk: Disk, path: str, kept_bytes: int, entries: bytes) -> None:
    """Make the file contain its first ``kept_bytes`` followed by ``entries``. Raises OSError.

    After a failure the file may be longer than before. The same call repairs that.
    """
    file = disk.open(path, create=True)
    try:
        if file.size != kept_bytes:
            file.truncate(kept_bytes)
        if entries:
            file.append([entries])
    finally:
        file.close()
