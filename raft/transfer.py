"""Leadership transfer (Ongaro §3.10; the successor is told as in KIP-595).

While a transfer is under way the leader takes no proposals. Once its whole log is committed and
durable at the successor, it resigns and names the successor first: no outcome becomes unknown.
"""

from __future__ import annotations

import logging

from raft.replica import RaftReplica
from raft.roles import NEVER, Leader, Transfer
from stele.errors import ErrorCode

_log = logging.getLogger(__name__)


def refusal(replica: RaftReplica, now: float, to: int) -> ErrorCode:
    """Why leadership cannot go to ``to`` now; NONE when it can."""
    state = replica.leading
    if state is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if to not in replica.voters.ids:
        return ErrorCode.VOTER_NOT_FOUND
    if to == replica.local.id:
        return ErrorCode.NONE
    if state.transfer is not None and state.transfer.to != to:
        return ErrorCode.INVALID_REQUEST
    progress = state.progress[to]
    if not progress.has_fetched or now - progress.last_contact > replica.timing.fetch_timeout_s:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return ErrorCode.NONE


def begin(replica: RaftReplica, now: float, to: int) -> None:
    """Start to hand over. A transfer to itself, or a second one to the same, changes nothing."""
    error = refusal(replica, now, to)
    if error is not ErrorCode.NONE:
        raise ValueError(f"leadership cannot go to {to}: {error.name}")
    state = replica.leading
    assert state is not None  # else it is refused
    if state.transfer is None and to != replica.local.id:
        state.transfer = Transfer(to, now + replica.timing.election_timeout_s)


def advance(replica: RaftReplica, now: float, state: Leader) -> None:
    """Resign when the successor has everything; go on leading if it takes too long."""
    if state.transfer is None:
        return
    end_offset = replica.log.end_offset
    if replica.high_watermark == state.progress[state.transfer.to].end_offset == end_offset:
        _log.info("epoch %d: leadership goes to voter %d", replica.epoch, state.transfer.to)
        replica.become_resigned(now, preferred=state.transfer.to)
    elif now >= state.transfer.give_up_at:
        _log.warning("voter %d did not catch up: leadership stays here", state.transfer.to)
        state.transfer = None


def give_up_at(state: Leader) -> float:
    return NEVER if state.transfer is None else state.transfer.give_up_at
