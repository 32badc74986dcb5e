"""How far one log is on disk, and what its next sync must cover."""

from __future__ import annotations

from collections.abc import Callable

from storage.config import LogConfig
from storage.log_types import SyncTicket
from world.disk import Disk


class Durability:
    """How far a log is on disk, and what its next sync must cover.

    ``on_dirty`` is called when there is something to sync. ``on_unflushed`` is called when
    something was written for which no sync is requested yet. Each is called once until ``begin``.
    """

    __slots__ = (
        "_dirty",
        "_disk",
        "_founding",
        "_on_dirty",
        "_on_unflushed",
        "_requirements",
        "_unflushed_records",
        "_unsynced_paths",
        "durable_offset",
        "generation",
        "is_held",
        "synced_offset",
    )

    def __init__(
        self,
        disk: Disk,
        end_offset: int,
        on_dirty: Callable[[], None],
        on_unflushed: Callable[[], None],
    ) -> None:
        """For a log that was just recovered, so that all of it is on disk."""
        self.synced_offset = end_offset
        """Everything below is on disk. Only truncations lower it."""
        self.durable_offset = end_offset
        """Everything below may be acknowledged. It is ``synced_offset``, or the log's end if the
        topic's flush is relaxed and the log is founded. It is never above the end, and only
        truncations lower it."""
        self.generation = 0
        """Rises with each truncation. A sync that began in an earlier generation is stale."""
        self._disk = disk
        self._on_dirty = on_dirty
        self._on_unflushed = on_unflushed
        self._dirty = False  # ``on_dirty`` was called, and no sync has begun since
        # The paths to sync beside the active segment's file, each with the number of the last
        # ``require`` that named it. A sync covers only requirements made before it began.
        self._unsynced_paths: dict[str, int] = {}
        self._requirements = 0  # the number of calls of ``require`` so far
        self._founding = 0  # the requirement of ``found`` that is not met yet; 0: none
        self.is_held = False
        """Whether a restart may go on with the log whose place this one has taken. Then nothing
        more may be acknowledged, whatever is on disk. Only this class changes it."""
        self._unflushed_records = 0

    def appended(self, records: int, end_offset: int, config: LogConfig) -> None:
        """``records`` more records were written, and the log now ends at ``end_offset``."""
        if config.strict_flush or self._founding or self.is_held:
            if not self._dirty:
                self.mark_dirty()
            return
        self.durable_offset = end_offset
        was_flushed = self._unflushed_records == 0
        self._unflushed_records += records
        if self._unflushed_records >= config.flush_messages:
            self.mark_dirty()
        elif was_flushed:
            self._on_unflushed()

    @property
    def is_dirty(self) -> bool:
        """Whether a sync was asked for and has not begun."""
        return self._dirty

    @property
    def is_flushed(self) -> bool:
        """Whether a sync that covers everything written has at least begun."""
        return self._unflushed_records == 0

    def mark_dirty(self) -> None:
        """There is something to sync."""
        if not self._dirty:
            self._dirty = True
            self._on_dirty()

    def require(self, *paths: str) -> None:
        """These paths must also be on disk before later appends count as durable."""
        self._requirements += 1
        self._unsynced_paths.update(dict.fromkeys(paths, self._requirements))
        self.mark_dirty()

    def found(self, *paths: str) -> None:
        """As ``require``, for the files without which a power loss leaves no log. Until they are on
        disk, records count as durable only when they are on disk, even if the topic's flush is
        relaxed. So a log whose files are missing has acknowledged nothing."""
        self.require(*paths)
        self._founding = self._requirements

    # ----------------------------------------------------------------------------- a sync

    def begin(self, active_path: str, end_offset: int) -> SyncTicket:
        """A group of the group commit begins. The ticket has the paths that it must sync."""
        self._dirty = False
        self._unflushed_records = 0
        paths: tuple[str, ...] = (active_path,)
        if self._unsynced_paths:
            for path in list(self._unsynced_paths):
                if not self._disk.exists(path):  # retention has deleted it
                    del self._unsynced_paths[path]
            paths = tuple(dict.fromkeys((active_path, *self._unsynced_paths)))
        records = end_offset - self.synced_offset
        return SyncTicket(paths, end_offset, self.generation, self._requirements, records)

    def finish(self, ticket: SyncTicket) -> bool:
        """The group is on disk. Returns whether ``durable_offset`` has risen. If the log was
        truncated since the group began, the offsets of the ticket no longer mean anything."""
        if ticket.generation != self.generation:
            return False
        if self._unsynced_paths:
            for path in ticket.paths:
                # A path that was required again since then has changed again, for example by a
                # second roll during the sync.
                if self._unsynced_paths.get(path, ticket.requirements) <= ticket.requirements:
                    self._unsynced_paths.pop(path, None)
        if self._founding <= ticket.requirements:
            self._founding = 0
        if ticket.end_offset > self.synced_offset:
            self.synced_offset = ticket.end_offset
        return self._catch_up()

    def _catch_up(self) -> bool:
        if self.is_held or self.synced_offset <= self.durable_offset:
            return False
        self.durable_offset = self.synced_offset
        return True

    # ----------------------------------------------------------------------------- taking over

    def hold(self, durable_offset: int, generation: int) -> None:
        """The log goes on in the place of another log, whose records below ``durable_offset`` may
        be acknowledged. Nothing more may be acknowledged, even if the flush is relaxed, until
        ``release``: bytes on disk here count only when this log does. Syncs under way no longer
        count."""
        self.durable_offset, self.generation = durable_offset, generation
        self.is_held = True
        self.mark_dirty()

    def release(self) -> bool:
        """The log counts. Returns whether ``durable_offset`` has risen."""
        self.is_held = False
        return self._catch_up()

    # ----------------------------------------------------------------------------- a cut

    def begin_cut(self) -> None:
        """The log is about to be truncated. Syncs under way no longer count."""
        self.generation += 1

    def end_cut(self, end_offset: int) -> None:
        """The truncated log ends at ``end_offset``, and its segments are on disk. Sync the other
        required paths now, waiting for the device. Raises OSError."""
        for path in self._unsynced_paths:
            if self._disk.exists(path):
                self._disk.sync_now(path)
        self._unsynced_paths.clear()
        self._founding = 0
        self.synced_offset = end_offset
        self.durable_offset = min(self.durable_offset, end_offset) if self.is_held else end_offset
        self._unflushed_records = 0
