"""What an administrator asks of the quorum, from the asking to its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raft.api import LeaderAndEpoch, NotLeaderError
from raft.core import RaftCore
from raft.ready import Ready, Role
from stele.errors import ApiError, ErrorCode

TRANSFER_TIMEOUT_FACTOR = 5  # times the election timeout: to catch up, and for an election or two

_TRANSFER_REFUSALS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this voter does not lead",
    ErrorCode.VOTER_NOT_FOUND: "there is no voter {}",
    ErrorCode.INVALID_REQUEST: "leadership is on its way to another voter; voter {} must wait",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "voter {} has not been heard of late",
}


class QuorumChanges:
    """Begins a change where it is allowed, and waits until it is done or has failed.

    ``core()`` is None while the replica does not run; ``guard`` lets the core take an event;
    ``leader()`` is who leads as this replica knows it. ``wake`` is called after every event.
    """

    def __init__(
        self,
        node_id: int,
        *,
        core: Callable[[], RaftCore | None],
        guard: Callable[[Callable[[RaftCore], Ready]], None],
        leader: Callable[[], LeaderAndEpoch],
        now: Callable[[], float],
    ) -> None:
        self._node_id = node_id
        self._core = core
        self._guard = guard
        self._leader = leader
        self._now = now
        self._watchers: list[asyncio.Future[None]] = []  # woken after the next event

    async def transfer_leadership(self, to: int) -> None:
        """Hand leadership to voter ``to``; return once it leads.

        Raises NotLeaderError, or ApiError: there is no such voter, it is not heard, it did not
        catch up in time or was not elected.
        """
        core = self._leading()
        refusal = core.transfer_refusal(to, self._now())
        if refusal is not ErrorCode.NONE:
            raise ApiError(refusal, _TRANSFER_REFUSALS[refusal].format(to))
        epoch = core.epoch
        self._guard(lambda core: core.transfer(to, self._now()))
        try:
            async with asyncio.timeout(TRANSFER_TIMEOUT_FACTOR * core.timing.election_timeout_s):
                await self._until(lambda: self._transfer_is_over(epoch))
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "no voter leads yet") from None
        leader = self._leader()
        if leader == LeaderAndEpoch(self._node_id, epoch) and to != self._node_id:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"voter {to} did not catch up in time: nothing changed"
            )
        if leader.leader_id != to:
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"voter {to} was not elected: the leader is {leader.leader_id}",
            )

    def _transfer_is_over(self, epoch: int) -> bool:
        core = self._core()
        if core is None:
            raise NotLeaderError(self._leader())
        leads = core.status.role is Role.LEADER and core.transferring_to is None
        return leads or (core.epoch > epoch and self._leader().leader_id is not None)

    # ------------------------------------------------------------------------------ waiting

    def wake(self) -> None:
        """Something has happened: who waits looks again."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    def _leading(self) -> RaftCore:
        core = self._core()
        if core is None or core.status.role is not Role.LEADER:
            raise NotLeaderError(self._leader())
        return core

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that only an event can bring about."""
        while not condition():
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher
