"""One group at a time: the syncs of one log directory.

A group covers everything that was written before it began. While it is on its way to the disk the
next one gathers, so a busy directory has as few syncs as the disk is slow.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Protocol

from storage.errors import StorageError
from storage.log_types import SyncTicket
from world.disk import Disk

logger = logging.getLogger(__name__)


class Member(Protocol):
    """What takes part in groups: a log."""

    @property
    def name(self) -> str: ...

    def begin_sync(self) -> SyncTicket: ...

    def finish_sync(self, ticket: SyncTicket) -> None: ...


class GroupCommit:
    """Syncs what its members wrote. ``on_failure`` is called once, after the first failed sync.

    A failed sync is never tried again: the kernel may have dropped the pages and would call the
    next one a success. From then on nothing becomes durable any more.
    """

    def __init__(self, disk: Disk, on_failure: Callable[[OSError], None]) -> None:
        self._disk = disk
        self._on_failure = on_failure
        self._dirty: dict[Member, None] = {}  # in the order they became so
        self._task: asyncio.Task[None] | None = None  # runs while there is anything to sync
        self._waiting: list[asyncio.Future[None]] = []  # of the group that gathers
        self.failure: OSError | None = None
        self.groups = 0  # that reached the disk

    def add(self, member: Member) -> None:
        """``member`` wrote something; it goes into the next group. Needs a running loop, unless
        it comes before ``start``."""
        if self.failure is not None:
            return
        self._dirty[member] = None
        self._kick()

    def remove(self, member: Member) -> None:
        """``member`` is about to be deleted: it needs no more syncs."""
        self._dirty.pop(member, None)

    def start(self) -> None:
        """There is a running loop now: begin with what was added before."""
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
                await self._disk.sync(list(paths))
        except OSError as error:
            self._fail(error, waiting)
            return
        except BaseException as error:
            # Cancelled or broken: what this group covered may never be on disk.
            self._fail(OSError(errno.EIO, f"a sync did not end: {error!r}"), waiting)
            raise
        self.groups += 1
        for member, ticket in tickets:
            try:
                member.finish_sync(ticket)
            except Exception:
                # A listener's bug must not keep the other logs from being acknowledged.
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
        """The disk failed, here or elsewhere: nothing becomes durable from now on."""
        if self.failure is None:
            self.failure = error
            self._dirty.clear()
            self._on_failure(error)

    async def close(self) -> None:
        """Wait for the group on its way; begin no other."""
        self._dirty.clear()
        if self._task is not None:
            await self._task


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
