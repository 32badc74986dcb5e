"""The driver of a replica's core: every event and every question goes through here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from raft.api import LeaderAndEpoch, NotLeaderError
from raft.core import RaftCore
from raft.membership import Refusal, VoterChange
from raft.messages import Inbound
from raft.ready import Ready, Role, Status
from runtime.quorum.log import QuorumLog
from runtime.silence import STALL_S
from stele.world import Clock, RpcCode, RpcError

_log = logging.getLogger(__name__)

_READING_S: Final = 0.1  # after a stall, for what has come meanwhile

Event = Callable[[RaftCore, float], Ready]
"""What happens to a core, and when: monotonic seconds."""


class Driver:
    """The way for the parts of a replica to read its core, hand it events and wait for it.

    ``carry_out`` carries out a Ready at once. ``fail`` is called with an error after which the
    replica cannot go on, and ends this. Everything runs on the event loop; events nest only if
    carrying one out causes another.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        carry_out: Callable[[Ready], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.clock = clock
        self.fail = fail
        self._carry_out = carry_out
        self.core: RaftCore | None = None  # None before the start and after the end, as the log is
        self.log: QuorumLog | None = None
        self.status = Status(Role.UNATTACHED, 0, None)  # as the listeners were last told
        self._watchers: list[asyncio.Future[None]] = []  # woken after the next event
        self._ticks = True
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")  # monotonic; the core is ticked no later than its deadline
        self._due_at = float("inf")  # monotonic: when the timer should fire, at the earliest now

    def begin(self, core: RaftCore, log: QuorumLog) -> None:
        self.core, self.log = core, log

    def end(self) -> None:
        """Take no event any more."""
        self.core = self.log = None
        self._disarm()

    def stop_ticking(self) -> None:
        """Only what others do is an event from here on."""
        self._ticks = False
        self._disarm()

    # ------------------------------------------------------------------------------- facts

    @property
    def leader(self) -> LeaderAndEpoch:
        """As this replica knows it."""
        return LeaderAndEpoch(self.status.leader_id, self.status.epoch)

    def running(self) -> QuorumLog:
        """The log while the replica runs. Otherwise raises RpcError: callers are remote."""
        if self.log is None:
            raise RpcError(RpcCode.UNAVAILABLE, "the replica does not run")
        return self.log

    def leading(self, epoch: int | None = None) -> RaftCore:
        """The core while it leads (that epoch). Raises NotLeaderError."""
        core = self.core
        if core is None or core.role is not Role.LEADER:
            raise NotLeaderError(self.leader)
        if epoch not in (None, core.epoch):
            raise NotLeaderError(self.leader)
        return core

    def change_refusal(self, change: VoterChange) -> Refusal | None:
        """Why the voters cannot be changed so now; None when they can. Raises NotLeaderError."""
        core = self.leading()
        return core.change_refusal(change, self.now(), has_room=self._has_room())

    def now(self) -> float:
        return self.clock.monotonic()

    # ------------------------------------------------------------------------------ events

    def take(self, event: Event) -> None:
        """Let the core take an event and carry out what it says; whatever fails is the end."""
        core = self.core
        if core is None:
            return
        try:
            if core.minds_room:
                core.tell_room(self._has_room())
            ready = event(core, self.now())
            self._carry_out(ready)
            self.wake()
            self._arm(ready.deadline)
        except Exception as error:
            self.fail(error)

    def step(self, inbound: Inbound) -> None:
        """A peer asks or answers, or a call has failed."""
        self.take(lambda core, now: core.step(inbound, now))

    def change_voters(self, change: VoterChange) -> None:
        """Begin a change that ``change_refusal`` has nothing against."""
        self.take(lambda core, now: core.change_voters(change, now, has_room=self._has_room()))

    def _has_room(self) -> bool:
        return self.log is not None and self.log.has_room()

    # ------------------------------------------------------------------------------ waiting

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that only an event can bring about."""
        while not condition():
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher

    def wake(self) -> None:
        """Something has happened: wake the waiting calls."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    # -------------------------------------------------------------------------------- time

    def _arm(self, deadline: float) -> None:
        """An armed timer that fires too early does no harm; one too late is replaced."""
        if deadline >= self._timer_at or not self._ticks:
            return
        self._disarm()
        now = self.now()
        self._timer_at, self._due_at = deadline, max(deadline, now)
        delay_s = self._due_at - now
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._timer_at = float("inf")

    def _on_timer(self) -> None:
        """Give the core the time, unless this process stood still. After a stall the messages of
        its peers are unread. A leader would resign because it has not heard the others, and a
        follower would stand for election. So messages come first, for a moment."""
        if self.now() - self._due_at > STALL_S:
            _log.warning("this process stood still for %.1f s", self.now() - self._due_at)
            self._timer_at, self._due_at = float("-inf"), float("inf")  # events arm no other timer
            self._timer = asyncio.get_running_loop().call_later(_READING_S, self._on_timer)
            return
        self._timer = None
        self._timer_at = float("inf")
        self.take(lambda core, now: core.tick(now))
