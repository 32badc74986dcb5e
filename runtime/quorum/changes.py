"""Administrators' changes of the quorum, from the request to its outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from raft.api import LeaderAndEpoch, NotLeaderError
from raft.core import RaftCore
from raft.membership import AddVoter, Refusal, RemoveVoter, UpdateVoter, VoterChange
from raft.quorum import ReplicaKey, Voter
from raft.ready import Role
from runtime.quorum.driver import Driver
from stele.errors import ApiError, ErrorCode
from stele.ids import encode_uuid

_log = logging.getLogger(__name__)

TRANSFER_TIMEOUT_FACTOR = 5  # times the election timeout: to catch up, and for an election or two
OUTCOME_TIMEOUT_FACTOR = 5  # times the election timeout: for the next leader to settle a change

_UNDONE = "leadership was lost before the change was committed: nothing changed. Ask again"
_UNKNOWN = (
    "leadership was lost before the change was committed, and it is not known whether it will be: "
    "look with stele quorum describe, and ask again if need be"
)

_TRANSFER_REFUSALS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this voter does not lead",
    ErrorCode.VOTER_NOT_FOUND: "there is no voter {}",
    ErrorCode.INVALID_REQUEST: "leadership is on its way to another voter; voter {} must wait",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "voter {} did not fetch lately",
}


VoterCheck = Callable[[Voter], Refusal | None]
"""Why a voter that supports only that cannot vote now; None: it can."""


class QuorumChanges:
    """Begins a change where it is allowed, and waits until it is done or has failed.

    ``voter_check`` is asked in the very turn in which a voter is appended or begins to be added, so
    that no decision comes in between. Until one is set, every voter will do.
    """

    def __init__(self, node_id: int, driver: Driver) -> None:
        self._node_id = node_id
        self._driver = driver
        self.voter_check: VoterCheck = lambda voter: None

    async def transfer_leadership(self, to: int) -> None:
        """Hand leadership to voter ``to``; return once it leads.

        Raises NotLeaderError, or ApiError: there is no such voter, it is not heard, it did not
        catch up in time or was not elected.
        """
        core = self._driver.leading()
        refusal = core.transfer_refusal(to, self._driver.now())
        if refusal is not ErrorCode.NONE:
            raise ApiError(refusal, _TRANSFER_REFUSALS[refusal].format(to))
        epoch = core.epoch
        self._driver.take(lambda core, now: core.transfer(to, now))
        try:
            async with asyncio.timeout(TRANSFER_TIMEOUT_FACTOR * core.timing.election_timeout_s):
                await self._driver.until(lambda: self._transfer_is_over(epoch))
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "no voter leads yet") from None
        leader = self._driver.leader
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
        core = self._driver.core
        if core is None:
            raise NotLeaderError(self._driver.leader)
        leads = core.role is Role.LEADER and core.transferring_to is None
        return leads or (core.epoch > epoch and self._driver.leader.leader_id is not None)

    # ------------------------------------------------------------------------------- voters

    async def change_voters(self, change: VoterChange) -> None:
        """Add, remove or update a voter; return once that is committed.

        Raises NotLeaderError when nothing was changed because this replica does not lead, and
        ApiError: refused, not caught up, undone by the next leader, or of unknown outcome.
        """
        core = await self._when(lambda: self._driver.change_refusal(change) or self._misfit(change))
        epoch, before = core.epoch, core.voters_offset
        self._driver.change_voters(change)
        if isinstance(change, AddVoter):
            await self._driver.until(lambda: self._is_appended(change, epoch))
        if isinstance(change, UpdateVoter) and core.voters_offset == before:
            return  # it is so already
        offset = self._appended(change, epoch, before)
        try:
            async with asyncio.timeout(OUTCOME_TIMEOUT_FACTOR * core.timing.election_timeout_s):
                await self._driver.until(lambda: self._is_decided(offset, epoch))
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, _UNKNOWN) from None
        if not self._is_committed(offset, epoch):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, _UNDONE)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether that very replica votes, by the committed record of the log."""
        core = self._driver.leading()
        committed = core.voters_at(max(core.high_watermark, 0))
        return any(voter.key == key for voter in committed.voters)

    async def wait_possible(self, change: VoterChange) -> None:
        """Wait a moment until the change could begin, whatever the voter supports.

        Raises NotLeaderError, ApiError.
        """
        await self._when(lambda: self._driver.change_refusal(change))

    def _misfit(self, change: VoterChange) -> Refusal | None:
        return None if isinstance(change, RemoveVoter) else self.voter_check(change.voter)

    async def _when(self, refusal: Callable[[], Refusal | None]) -> RaftCore:
        """Wait a moment for what passes: a commit, the first one of a new leader, another change.

        Raises NotLeaderError, ApiError.
        """

        def is_settled() -> bool:
            refused = refusal()
            return refused is None or refused.error is not ErrorCode.REQUEST_TIMED_OUT

        try:
            async with asyncio.timeout(self._driver.leading().timing.election_timeout_s):
                await self._driver.until(is_settled)
        except TimeoutError:
            _log.info("a change of voters must wait longer than its caller")
        if (refused := refusal()) is not None:
            raise ApiError(refused.error, refused.message)
        return self._driver.leading()

    def _is_appended(self, change: AddVoter, epoch: int) -> bool:
        """Or will never be."""
        core = self._driver.core
        if core is None or core.epoch != epoch or core.role is not Role.LEADER:
            return True
        return core.adding != change.voter

    def _appended(self, change: VoterChange, epoch: int, before: int) -> int:
        """The offset of the change's record. Raises NotLeaderError, ApiError if there is no
        record."""
        core = self._driver.core
        if core is None or core.epoch != epoch:
            raise NotLeaderError(self._driver.leader)
        # While one is to be added, the leader may write down other things that it learns.
        awaited = isinstance(change, AddVoter) and change.voter not in core.voters.voters
        if core.voters_offset != before and not awaited:
            return core.voters_offset
        if isinstance(change, AddVoter) and core.role is Role.LEADER:
            voter = change.voter.key
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"controller {voter.id} with the directory id {encode_uuid(voter.directory_id)} "
                f"did not catch up within {change.timeout_s:g} s: nothing changed. Look at its lag "
                "with stele quorum describe, and add it when that is near 0",
            )
        raise NotLeaderError(self._driver.leader)

    def _is_decided(self, offset: int, epoch: int) -> bool:
        core = self._driver.core
        if core is None:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, _UNKNOWN)
        return self._is_committed(offset, epoch) or core.log.epoch_of(offset) != epoch

    def _is_committed(self, offset: int, epoch: int) -> bool:
        core = self._driver.core
        if core is None:
            return False
        return core.high_watermark > offset and core.log.epoch_of(offset) == epoch
