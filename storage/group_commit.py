"""The syncs of one log directory, in groups.

A group covers all logs that were written before it began. While its sync is under way the next
group gathers. So the slower the disk is, the more writes share a sync.

**A group that takes long delays no other log.** A client that writes without a pause can make every
group large: many files, and many answers when it ends. When a group has taken ``PATIENCE_S`` and
other logs wait, a small second group begins beside it, of those with the least to sync. There are
never more than these two. While groups are faster than ``PATIENCE_S`` there is no second one.

**The size of a group is bounded while the disk is slow.** After a group that took ``SLOW_S`` the
next one has the log that has waited longest, and those with the least to sync, up to
``GROUP_BYTES``. So a log with little to sync waits for one sync under way at most, and then for the
one that covers it, whatever a greedy client has written to other logs. That client waits for its
own logs, one group after the other: its connections have a bounded number of bytes in flight, and
are not read meanwhile.

**The end of a group is no long turn of the event loop.** Its logs are told in slices of
``SLICE_S``, those with the fewest new records first. The next group begins meanwhile.

An example: eight logs get 500 requests at a time, and their sync takes 20 ms. A ninth log gets one
request 5 ms after that sync began. Its own sync begins at once and takes 1 ms. When both syncs end
in the same turn, the ninth log does not wait for the 500 answers.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from stele.world import Clock
from storage.errors import StorageError
from storage.log_types import SyncTicket
from storage.sync_order import SyncOrder
from world.disk import Disk

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 0.002
"""A group that takes longer gets another one beside it, if logs wait. A group of a few files on a
fast disk takes less."""

BESIDE_MEMBERS: Final = 8
BESIDE_BYTES: Final = 1 << 20
"""The most logs in a group that begins beside another one, and the most bytes, beside those of the
first. It is to be quick."""

SLOW_S: Final = 0.01
GROUP_BYTES: Final = 16 << 20
"""After a group that took so long the next one has so many bytes at most, beside those of one log.
Eight connections can have 512 MiB in flight, and a sync of that takes seconds."""

SLICE_S: Final = 0.001
"""After so much time the logs of a group that has ended let other work of the loop go first."""

SLICE_MEMBERS: Final = 50
"""A slice has at most so many logs, since in the simulator work takes no time."""


class Member(Protocol):
    """A member of a group commit: a log."""

    @property
    def name(self) -> str: ...

    @property
    def unsynced_bytes(self) -> int:
        """About what the next sync has to write."""
        ...

    def begin_sync(self) -> SyncTicket: ...

    def finish_sync(self, ticket: SyncTicket) -> None: ...

    def fail(self, error: Exception) -> None: ...


Synced = Callable[[StorageError | None], None]
"""Called once: what was written is on disk, or the reason why it may not be."""


class _Waiter:
    """One that waits until what was written is on disk."""

    __slots__ = ("synced",)

    def __init__(self, synced: Synced) -> None:
        self.synced = synced


@dataclass(slots=True, eq=False)
class _Group:
    """The logs that one sync covers. Those that have been told are no longer in it."""

    tickets: deque[tuple[Member, SyncTicket]]
    began_s: float
    is_beside: bool  # whether it began beside another group


class GroupCommit:
    """Syncs the writes of its members. ``on_failure`` is called once, after the first failed
    sync.

    A failed sync is never retried: the kernel may have dropped the pages, and the next sync would
    succeed without having written them. So after a failure nothing becomes durable any more, also
    nothing of a group beside the failed one.
    """

    def __init__(self, disk: Disk, clock: Clock, on_failure: Callable[[OSError], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._on_failure = on_failure
        self.on_synced: Callable[[float], None] = _ignore_time
        """Called with the seconds that the sync of a group took."""
        self._order: SyncOrder[Member, _Waiter] = SyncOrder()
        self._first: _Group | None = None  # its sync is under way
        self._beside: _Group | None = None  # likewise
        self._unfinished = 0  # groups that have begun and whose logs have not all been told
        self._is_due = False  # a first group is about to begin
        self._is_slow = False  # the last first group took long
        self._is_patient = False  # a second group is about to begin, unless the first one ends
        self._waiting: dict[_Waiter, None] = {}  # in the order of their coming
        self._closing: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # None until it is needed and runs
        self.failure: OSError | None = None
        self.groups = 0  # groups that have reached the disk

    def add(self, member: Member) -> None:
        """``member`` wrote something that the next group must cover. Needs a running event loop,
        except before ``start``."""
        if self.failure is not None:
            return
        self._order.add(member)
        if not self._is_due:  # usually it is
            self._kick()

    def remove(self, member: Member) -> None:
        """``member`` is about to be deleted and needs no more syncs."""
        self._order.remove(member)
        if self._waiting and (loop := self._running_loop()) is not None:  # perhaps for nothing else
            loop.call_soon(self._tell_synced)

    def start(self) -> None:
        """Begin with the members added so far, now that there is a running event loop."""
        self._kick()

    def _kick(self) -> None:
        """Some log may wait for a group."""
        if self._is_due or not self._order.ready:
            return
        loop = self._loop or self._running_loop()
        if loop is None:
            return
        # A group begins after the events at hand, since their writes can share it.
        if self._first is None:
            self._is_due = True
            loop.call_soon(self._begin_first)
        elif self._beside is None and not self._is_patient:
            self._is_patient = True
            left_s = self._first.began_s + PATIENCE_S - self._clock.monotonic()
            loop.call_later(max(left_s, 0.0), self._begin_beside)

    def _running_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that all groups end in. It is held, because asyncio looks for it with a call of
        the kernel."""
        if self._loop is None:
            try:
                self._loop = asyncio.get_running_loop()
            except RuntimeError:
                return None
        return self._loop

    async def flush(self) -> None:
        """Return when everything written before the call is on disk. Raises StorageError."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait(functools.partial(_tell, waiter), None)
        await waiter

    def synced_then(self, members: Iterable[Member], synced: Synced) -> None:
        """Call ``synced`` when everything that was written to the members before the call is on
        disk, or it never will be; at once if it is. Other members are not waited for: a slow group
        of theirs is nothing to the caller."""
        self._wait(synced, members)

    def _wait(self, synced: Synced, members: Iterable[Member] | None) -> None:
        if self.failure is not None:
            synced(StorageError(f"a sync failed: {self.failure}"))
            return
        waiter = _Waiter(synced)
        if self._order.wait(waiter, members):
            self._waiting[waiter] = None
            if not self._is_due:
                self._kick()
        else:
            synced(None)

    # ----------------------------------------------------------------------------- groups

    def _begin_first(self) -> None:
        self._is_due = False
        while self._first is None and self._order.ready:
            self._begin(is_beside=False)
        if self._order.ready:  # a log may have come while the first group began
            self._kick()

    def _begin_beside(self) -> None:
        """Logs wait no longer for the first group, if it is still under way."""
        self._is_patient = False
        if self._first is not None and self._beside is None and self._order.ready:
            self._begin(is_beside=True)
        self._kick()

    def _begin(self, *, is_beside: bool) -> None:
        """Begin a group. If its logs need no sync, it has ended when this returns."""
        if is_beside or self._is_slow:
            members = self._bounded_members(is_beside=is_beside)
        else:
            members = self._order.take()
        self._unfinished += 1
        try:
            tickets = self._tickets(members)
            paths: Sequence[str]
            if len(tickets) == 1:  # like most groups; a ticket names each path once
                paths = tickets[0][1].paths
            else:
                tickets.sort(key=_records)
                paths = list(dict.fromkeys(path for _, ticket in tickets for path in ticket.paths))
            group = _Group(deque(tickets), self._clock.monotonic(), is_beside)
            syncing = asyncio.ensure_future(self._disk.sync(paths)) if paths else None
        except Exception as error:
            self._unfinished -= 1
            self._fail(OSError(errno.EIO, f"a sync did not begin: {error!r}"))
            raise
        if syncing is None:
            self._finish(group, group.began_s)
            return
        if is_beside:
            self._beside = group
        else:
            self._first = group
        syncing.add_done_callback(functools.partial(self._end, group))

    def _bounded_members(self, *, is_beside: bool) -> list[Member]:
        """The logs of a group that begins while the disk is slow: only then their sizes count."""
        if is_beside:
            return self._order.take_least(BESIDE_MEMBERS, BESIDE_BYTES, _unsynced_bytes)
        return self._order.take_within(GROUP_BYTES, _unsynced_bytes)

    def _tickets(self, members: Iterable[Member]) -> list[tuple[Member, SyncTicket]]:
        """What the members put into a group. One that fails at that is not in it, and must not
        stop the others."""
        tickets: list[tuple[Member, SyncTicket]] = []
        for member in members:
            try:
                tickets.append((member, member.begin_sync()))
            except Exception as error:
                self._order.release(member)
                member.fail(error)
        return tickets

    def _end(self, group: _Group, synced: asyncio.Future[None]) -> None:
        """The sync of a group has ended."""
        now_s = self._clock.monotonic()
        took_s = now_s - group.began_s
        if group.is_beside:
            self._beside = None
        else:
            self._first = None
            self._is_slow = took_s >= SLOW_S
        error = asyncio.CancelledError() if synced.cancelled() else synced.exception()
        if error is None:
            self.groups += 1
            self.on_synced(took_s)
        elif isinstance(error, OSError):
            self._fail(error)
        else:  # the writes of this group may never be on disk
            self._fail(OSError(errno.EIO, f"a sync did not end: {error!r}"))
        self._finish(group, now_s)
        if not self._order.ready:
            return
        if group.is_beside or self._is_due:
            self._kick()
        else:
            self._begin_first()

    def _finish(self, group: _Group, began_s: float) -> None:
        """Tell the logs of a group that is on disk, one slice at a time. This slice began at
        ``began_s``."""
        told = 0
        while group.tickets and self.failure is None:
            if told and (told == SLICE_MEMBERS or self._clock.monotonic() - began_s >= SLICE_S):
                asyncio.get_running_loop().call_soon(self._go_on, group)
                self._tell_synced()
                return
            member, ticket = group.tickets.popleft()
            told += 1
            try:
                member.finish_sync(ticket)
            except Exception:
                # A bug in one log's callback must not delay the acknowledgements of the others.
                logger.exception("after the sync of %s", member.name)
            self._order.release(member)
        self._unfinished -= 1
        if self._order.over:
            self._tell_synced()
        if self._closing:
            self._rest()

    def _go_on(self, group: _Group) -> None:
        self._finish(group, self._clock.monotonic())
        self._kick()

    def _tell_synced(self) -> None:
        """Call those whose writes are all on disk now. After a failure they are refused instead."""
        while self._order.over and self.failure is None:
            over, self._order.over = self._order.over, []
            for waiter in over:
                if waiter in self._waiting:
                    del self._waiting[waiter]
                    _call(waiter.synced, None)

    # ----------------------------------------------------------------------------- the end

    def _rest(self) -> None:
        if self._unfinished:
            return
        for closing in self._closing:
            if not closing.done():
                closing.set_result(None)

    def _fail(self, error: OSError) -> None:
        self.fail(error)
        self._tell_failed()

    def fail(self, error: OSError) -> None:
        """The disk failed, in a sync or elsewhere. Nothing becomes durable from now on."""
        if self.failure is None:
            self.failure = error
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._tell_failed)
            self._order.clear()
            self._on_failure(error)

    def _tell_failed(self) -> None:
        self._refuse_waiting(f"a sync failed: {self.failure}")
        self._rest()

    def _refuse_waiting(self, why: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            _call(waiter.synced, StorageError(why))

    async def close(self) -> None:
        """Wait for the groups that are under way. No other begins."""
        self._refuse_waiting("the log directory is closed")
        self._order.clear()
        if self._unfinished:
            self._closing.append(asyncio.get_running_loop().create_future())
            await self._closing[-1]


def _unsynced_bytes(member: Member) -> int:
    try:
        return member.unsynced_bytes
    except Exception:
        return 0  # its begin_sync fails, too, and then it is not in the group


def _records(entry: tuple[Member, SyncTicket]) -> int:
    return entry[1].records


def _call(synced: Synced, error: StorageError | None) -> None:
    try:
        synced(error)
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
