"""Writing an index's new entries to its file."""

from __future__ import annotations

from world.disk import Disk


def write_entries(disk: Disk, path: str, kept_bytes: int, entries: bytes) -> None:
    """Make the file its first ``kept_bytes`` followed by ``entries``. Raises OSError.

    After a failure the file may be longer than before; the same call made again sets it right.
    """
    file = disk.open(path, create=True)
    try:
        if file.size != kept_bytes:
            file.truncate(kept_bytes)
        if entries:
            file.append([entries])
    finally:
        file.close()
