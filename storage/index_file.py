"""The file of an index: what changes in it."""

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


def remove_file(disk: Disk, path: str) -> None:
    """Remove an index file, if there is one. Raises OSError."""
    if disk.exists(path):
        disk.remove(path)
