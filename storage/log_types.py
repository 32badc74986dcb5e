"""What goes into and comes out of a ``PartitionLog``."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from stele.wire.batch import NO_TIMESTAMP
from stele.world import Buffer
from storage.availability import Availability
from storage.config import LogConfig
from storage.segment import ColdRange
from storage.segments import Segments

LogT = TypeVar("LogT", contravariant=True)


class LogOwner(Protocol[LogT]):
    """What a log tells the directory that it belongs to."""

    def dirty(self, log: LogT) -> None:
        """There is something to sync: call ``begin_sync`` when the next group begins."""
        ...

    def unflushed(self, log: LogT) -> None:
        """The log holds something that it asks no sync for yet; ``flush.ms`` begins."""
        ...

    def failed(self, log: LogT, error: OSError) -> None:
        """The log is offline: the device failed, or a change of the log was cut short."""
        ...

    def refused(self, log: LogT, size_bytes: int) -> None:
        """Nothing of so many bytes was written: the disk is full."""
        ...

    def set_aside(self, paths: list[str]) -> None:
        """These files were renamed and belong to nobody: their space is to be freed soon."""
        ...

    def lower_checkpoints(self, log: LogT, offset: int) -> None:
        """The log is about to be cut: no checkpoint on disk may claim more than ``offset``.

        Durable before it returns. Raises OSError.
        """
        ...


class AppendResult(NamedTuple):
    """Where batches stand. ``duplicate``: they stood there already, nothing was written."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int = NO_TIMESTAMP
    duplicate: bool = False


class ReadResult(NamedTuple):
    """Whole batches, or why there are none yet.

    ``data`` is empty if nothing readable stands there, or if ``cold`` says what to warm first:
    ``await disk.warm(*result.cold)``, check leadership and truncation generation, read again.
    """

    data: Buffer
    next_offset: int
    cold: ColdRange | None = None


class SyncTicket(NamedTuple):
    """What one log puts into a group, and what is durable once the group is on disk."""

    paths: tuple[str, ...]
    end_offset: int
    generation: int
    requirements: int
    """How many times paths had been required when the group began."""


class TimestampOffset(NamedTuple):
    """A record found by time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class LogView(Protocol):
    """What the helpers of a log see of it: they search it and take from it while it is in use.

    Across an ``await`` only what is asked again holds: the log may have been cut, or closed.
    """

    directory: str
    config: LogConfig
    segments: Segments
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
