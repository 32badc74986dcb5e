"""The syncs of one log directory, one group at a time.

A group covers everything that was written before it began. While its sync is under way the next
group gathers. So the slower the disk is, the more writes share a sync.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from stele.world import Clock
from storage.errors import StorageError
from storage.log_types import SyncTicket
from world.disk import Disk

logger = logging.getLogger(__name__)


class Member(Protocol):
    """A member of a group commit: a log."""

    @property
    def name(self) -> str: ...

    def begin_sync(self) -> SyncTicket: ...

    def finish_sync(self, ticket: SyncTicket) -> None: ...

    def fail(self, error: Exception) -> None: ...


Flushed = Callable[[StorageError | None], None]
"""Called once: everything is on disk, or the reason why it may not be."""


class _Group(NamedTuple):
    """The logs that one sync covers, and the callers that wait for it."""

    tickets: Sequence[tuple[Member, SyncTicket]]
    waiting: Sequence[Flushed]
    began_s: float


class GroupCommit:
    """Syncs the writes of its members. ``on_failure`` is called once, after the first failed
    sync.

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
        self._is_at_work = False  # a group is under way, or about to begin
        self._waiting: list[Flushed] = []  # for the next group
        self._closing: list[asyncio.Future[None]] = []
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
        if not self._is_at_work and _loop_runs():
            self._is_at_work = True
            # After the events at hand, since their writes can share the group.
            asyncio.get_running_loop().call_soon(self._begin_group)

    async def flush(self) -> None:
        """Return when everything written before the call is on disk. Raises StorageError."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flush_then(functools.partial(_tell, waiter))
        await waiter

    def flush_then(self, flushed: Flushed) -> None:
        """Call ``flushed`` when everything written before the call is on disk, or it never will be;
        at once if it is."""
        if self.failure is not None:
            flushed(StorageError(f"a sync failed: {self.failure}"))
        elif self._dirty or self._is_at_work:
            self._waiting.append(flushed)
            self._kick()
        else:
            flushed(None)

    def _begin_group(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self.failure is not None:
            _tell_all(waiting, StorageError(f"a sync failed: {self.failure}"))
        if self.failure is not None or not (self._dirty or waiting):
            self._rest()
            return
        members, self._dirty = self._dirty, {}
        try:
            tickets = self._tickets(members)
            group = _Group(tickets, waiting, self._clock.monotonic())
            paths = dict.fromkeys(path for _, ticket in tickets for path in ticket.paths)
            syncing = asyncio.ensure_future(self._disk.sync(list(paths))) if paths else None
        except Exception as error:
            self._fail(OSError(errno.EIO, f"a sync did not begin: {error!r}"), waiting)
            self._rest()
            raise
        if syncing is None:
            self._finish(group)
            self._begin_group()
        else:
            syncing.add_done_callback(functools.partial(self._end_group, group))

    def _tickets(self, members: Iterable[Member]) -> list[tuple[Member, SyncTicket]]:
        """What the members put into a group. One that fails at that is not in it, and must not
        stop the others."""
        tickets: list[tuple[Member, SyncTicket]] = []
        for member in members:
            try:
                tickets.append((member, member.begin_sync()))
            except Exception as error:
                member.fail(error)
        return tickets

    def _end_group(self, group: _Group, synced: asyncio.Future[None]) -> None:
        error = asyncio.CancelledError() if synced.cancelled() else synced.exception()
        if error is None:
            self.on_synced(self._clock.monotonic() - group.began_s)
            self._finish(group)
        elif isinstance(error, OSError):
            self._fail(error, group.waiting)
        else:  # the writes of this group may never be on disk
            self._fail(OSError(errno.EIO, f"a sync did not end: {error!r}"), group.waiting)
        self._begin_group()

    def _finish(self, group: _Group) -> None:
        self.groups += 1
        for member, ticket in group.tickets:
            try:
                member.finish_sync(ticket)
            except Exception:
                # A bug in one log's callback must not delay the acknowledgements of the others.
                logger.exception("after the sync of %s", member.name)
        _tell_all(group.waiting, None)

    def _rest(self) -> None:
        self._is_at_work = False
        for closing in self._closing:
            if not closing.done():
                closing.set_result(None)

    def _fail(self, error: OSError, waiting: Sequence[Flushed]) -> None:
        self.fail(error)
        later, self._waiting = self._waiting, []
        _tell_all([*waiting, *later], StorageError(f"a sync failed: {error}"))

    def fail(self, error: OSError) -> None:
        """The disk failed, in a sync or elsewhere. Nothing becomes durable from now on."""
        if self.failure is None:
            self.failure = error
            self._dirty.clear()
            self._on_failure(error)

    async def close(self) -> None:
        """Wait for the group that is under way. No other begins."""
        self._dirty.clear()
        if self._is_at_work:
            self._closing.append(asyncio.get_running_loop().create_future())
            await self._closing[-1]


def _tell_all(waiting: Sequence[Flushed], error: StorageError | None) -> None:
    for flushed in waiting:
        try:
            flushed(error)
        except Exception:
            # A bug of one that waits must not keep it from the others, nor stop all later groups.
            logger.exception("after a sync")


def _tell(waiter: asyncio.Future[None], error: StorageError | None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)


def _ignore_time(seconds: float) -> None:
    """Measures nothing."""


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
