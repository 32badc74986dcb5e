"""The types of the arguments and results of ``PartitionLog``."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from stele.wire.batch import NO_TIMESTAMP
from stele.world import Buffer
from storage.availability import Availability
from storage.cold_range import ColdRange
from storage.config import LogConfig
from storage.producer_state import ProducerStates
from storage.segments import Segments

LogT = TypeVar("LogT", contravariant=True)


class LogOwner(Protocol[LogT]):
    """The reports of a log to its directory."""

    def dirty(self, log: LogT) -> None:
        """There is something to sync. The next group must call ``begin_sync``."""
        ...

    def unflushed(self, log: LogT) -> None:
        """The log has unsynced bytes for which it requests no sync yet. ``flush.ms`` begins now."""
        ...

    def failed(self, log: LogT, error: OSError) -> None:
        """The log is offline: the device failed, or a change of the log was not completed."""
        ...

    def refused(self, log: LogT, size_bytes: int) -> None:
        """A write of ``size_bytes`` bytes failed as a whole because the disk is full."""
        ...

    def set_aside(self, paths: list[str]) -> None:
        """These files were renamed and are no longer part of the log. Their space should be freed
        soon."""
        ...

    def lower_checkpoints(self, log: LogT, offset: int) -> None:
        """The log is about to be truncated. No checkpoint on disk may claim more than ``offset``.

        This is durable when it returns. Raises OSError.
        """
        ...


class AppendResult(NamedTuple):
    """The place of appended batches. ``duplicate``: they were in the log already, and nothing was
    written."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int = NO_TIMESTAMP
    duplicate: bool = False


class ReadResult(NamedTuple):
    """Whole batches, or the reason why there are none yet.

    ``data`` is empty if there is nothing to read, or if ``cold`` says which bytes to warm first:
    ``await disk.warm(*result.cold)``, check leadership and truncation generation, and read again.
    """

    data: Buffer
    next_offset: int
    cold: ColdRange | None = None


class SyncTicket(NamedTuple):
    """The files of one log that a group must sync, and the offset that is durable afterwards."""

    paths: tuple[str, ...]
    end_offset: int
    generation: int
    requirements: int
    """The number of calls of ``Durability.require`` when the group began."""
    records: int
    """The offsets that this sync makes durable."""


class TimestampOffset(NamedTuple):
    """A record found by time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class LogView(Protocol):
    """A log as its helper functions see it. They search and change it while it is in use.

    After an ``await`` they must ask again: the log may have been truncated or closed meanwhile.
    """

    directory: str
    config: LogConfig
    segments: Segments
    producers: ProducerStates
    availability: Availability
    start_offset: int
    end_offset: int

    @property
    def name(self) -> str: ...

    @property
    def offline(self) -> OSError | None: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def latest_epoch(self) -> int: ...

    @property
    def truncation_generation(self) -> int: ...

    def read(self, offset: int, max_bytes: int) -> ReadResult: ...

    async def warm(self, cold: ColdRange) -> None: ...
