"""Whether this broker's disks have room for what producers, leaders and controllers send.

A broker without room leads nothing that another in-sync replica with room could lead, and leaves
the ISRs that are large enough without it: the controller hears of it by heartbeats.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from typing import Final

from stele.world import Clock
from world.disk import Disk

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 1.0

_LOW_BYTES: Final = 2 << 20
"""A directory with less free space counts as full, even before a write is refused. The metadata log
keeps 1 MiB free beside its writes. A broker that cannot append to it would never learn which
partitions it must lead."""

_ENOUGH_BYTES: Final = 8 << 20
"""The room that must be free again, some of the largest batches: else the next would not fit."""

_ENOUGH_TIMES: Final = 4  # as much as was refused

_LEAST_S: Final = 5.0
"""How long a directory counts as full at least. A file system that refuses by another rule than
its free bytes (a quota) must not make leaders go back and forth."""

_SETTLE_S: Final = 2 * CHECK_INTERVAL_S
"""How long a broker leads on without room. Replicas fill up together: those that have no room
either have said so by then, and leadership does not go to one of them."""


class Room(enum.Enum):
    """How the disks of a broker are."""

    ENOUGH = "enough"
    NONE = "none"  # it is not to be elected
    YIELDS = "yields"  # brokers with room should take over its leaderships


class _Full:
    """A directory without room."""

    __slots__ = ("enough_bytes", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.enough_bytes = _ENOUGH_BYTES


class Rooms:
    """Which directories are full. Call ``check`` every ``CHECK_INTERVAL_S``."""

    def __init__(self, disk: Disk, clock: Clock, paths: Sequence[str]) -> None:
        self._disk = disk
        self._clock = clock
        self._paths = tuple(dict.fromkeys(paths))
        self._full: dict[str, _Full] = {}
        self._told = Room.ENOUGH
        self.on_change: Callable[[], None] = lambda: None
        """Called when ``room`` has become another."""

    @property
    def full(self) -> tuple[str, ...]:
        """The directories that have no room now."""
        return tuple(path for path in self._paths if path in self._full)

    @property
    def room(self) -> Room:
        """The state that heartbeats report to the controller."""
        if not self._full:
            return Room.ENOUGH
        now_s = self._clock.monotonic()
        settled = any(now_s - full.since_s >= _SETTLE_S for full in self._full.values())
        return Room.YIELDS if settled else Room.NONE

    def leave_out(self, path: str) -> None:
        """The directory is offline: its room does not matter."""
        self._paths = tuple(each for each in self._paths if each != path)
        self._full.pop(path, None)
        self._tell()

    def refused(self, path: str, size_bytes: int) -> None:
        """A write of this size was refused because there was no room."""
        full = self._full.get(path) or self._mark(path)
        full.enough_bytes = max(full.enough_bytes, _ENOUGH_TIMES * size_bytes)
        self._tell()

    def check(self) -> None:
        """One look at each directory."""
        now_s = self._clock.monotonic()
        for path in self._paths:
            free_bytes = self.free_bytes(path)
            full = self._full.get(path)
            if full is None:
                if free_bytes < _LOW_BYTES:
                    self._mark(path)
            elif now_s - full.since_s >= _LEAST_S and free_bytes >= full.enough_bytes:
                del self._full[path]
                logger.warning("%s has room again", path)
        self._tell()

    def free_bytes(self, path: str) -> int:
        """0 where the disk does not say."""
        try:
            return self._disk.free_bytes(path)
        except OSError:
            return 0

    def _tell(self) -> None:
        told, self._told = self._told, self.room
        if told is not self._told:
            self.on_change()

    def _mark(self, path: str) -> _Full:
        full = self._full[path] = _Full(self._clock.monotonic())
        logger.error(
            "%s is full: this broker leaves its partitions to others that have room, until "
            "there is room again: free space, or lower retention.ms or retention.bytes",
            path,
        )
        return full
