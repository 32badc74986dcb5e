"""A log that belongs to no directory."""

from __future__ import annotations

from storage.log_types import LogOwner, LogT
from world.disk import Disk


class Unowned(LogOwner[LogT]):
    """Only the log's user syncs it, and it has no checkpoints."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def dirty(self, log: LogT) -> None: ...

    def unflushed(self, log: LogT) -> None: ...

    def failed(self, log: LogT, error: OSError) -> None: ...

    def refused(self, log: LogT, size_bytes: int) -> None: ...

    def set_aside(self, paths: list[str]) -> None:
        """Free their space at once. Removing a large file takes long."""
        for path in paths:
            if self._disk.exists(path):
                self._disk.remove(path)

    def lower_checkpoints(self, log: LogT, offset: int) -> None: ...
