"""The syncs of one log directory, one group at a time.

A group covers everything that was written before it began. While its sync is under way the next
group gathers. So the slower the disk is, the more writes share a sync.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Protocol

from stele.world import Clock
from storage.errors import StorageError
from storage.log_types import SyncTicket
from world.disk import Disk

logger = logging.getLogger(__name__)


class Member(Protocol):
    """What a group commit syncs: a log."""

    @property
    def name(self) -> str: ...

    def begin_sync(self) -> SyncTicket: ...

    def finish_sync(self, ticket: SyncTicket) -> None: ...


class GroupCommit:
    """Syncs what its members wrote. ``on_failure`` is called once, after the first failed sync.

    A failed sync is never retried: the kernel may have dropped the pages, and the next sync would
    succeed without having written them. So after a failure nothing becomes durable any more.
    """

    def __init__(self, disk: Disk, clock: Clock, on_failure: Callable[[OSError], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._on_failure = on_failure
        self.on_synced: Callable[[float], None] = _ignore_time
        """Called with the seconds that the sync of a group took."""
        self._dirty: dict[Member, None] = {}  # in the order in which they became dirty
        self._task: asyncio.Task[None] | None = None  # runs while there is something to sync
        self._waiting: list[asyncio.Future[None]] = []  # wait for the next group
        self.failure: OSError | None = None
        self.groups = 0  # groups that have reached the disk

    def add(self, member: Member) -> None:
        """``member`` wrote something that the next group must cover. Needs a running event loop,
        except before ``start``."""
        if self.failure is not None:
            return
        self._dirty[member] = None
        self._kick()

    def remove(self, member: Member) -> None:
        """``member`` is about to be deleted and needs no more syncs."""
        self._dirty.pop(member, None)

    def start(self) -> None:
        """Begin with the members added so far, now that there is a running event loop."""
        if self._dirty:
            self._kick()

    def _kick(self) -> None:
        if self._task is None and _loop_runs():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def flush(self) -> None:
        """Return when everything written before the call is on disk. Raises StorageError."""
        if self.failure is not None:
            raise StorageError(f"a sync failed: {self.failure}")
        if not self._dirty and self._task is None:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._kick()
        await waiter

    async def _run(self) -> None:
        try:
            while (self._dirty or self._waiting) and self.failure is None:
                await self._run_group()
        finally:
            self._task = None

    async def _run_group(self) -> None:
        waiting, self._waiting = self._waiting, []
        members, self._dirty = self._dirty, {}
        tickets = [(member, member.begin_sync()) for member in members]
        paths = dict.fromkeys(path for _, ticket in tickets for path in ticket.paths)
        try:
            if paths:
                began_s = self._clock.monotonic()
                await self._disk.sync(list(paths))
                self.on_synced(self._clock.monotonic() - began_s)
        except OSError as error:
            self._fail(error, waiting)
            return
        except BaseException as error:
            # The sync was cancelled or failed: what this group covered may never be on disk.
            self._fail(OSError(errno.EIO, f"a sync did not end: {error!r}"), waiting)
            raise
        self.groups += 1
        for member, ticket in tickets:
            try:
                member.finish_sync(ticket)
            except Exception:
                # A bug in one log's callback must not delay the acknowledgements of the others.
                logger.exception("after the sync of %s", member.name)
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, error: OSError, waiting: list[asyncio.Future[None]]) -> None:
        self.fail(error)
        for waiter in [*waiting, *self._waiting]:
            if not waiter.done():
                waiter.set_exception(StorageError(f"a sync failed: {error}"))
        self._waiting = []

    def fail(self, error: OSError) -> None:
        """The disk failed, in a sync or elsewhere. Nothing becomes durable from now on."""
        if self.failure is None:
            self.failure = error
            self._dirty.clear()
            self._on_failure(error)

    async def close(self) -> None:
        """Wait for the group that is under way. No other begins."""
        self._dirty.clear()
        if self._task is not None:
            await self._task


def _ignore_time(seconds: float) -> None:
    """Nobody measures."""


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
