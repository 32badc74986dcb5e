"""Confirmation by a majority that a leader still leads, for reads that must not be stale.

A leader may have been deposed and not know it yet. So a read that has to see every change that was
acknowledged before it began is served only when a majority of voters has answered, after the read
began, in the leader's own epoch: none of them had then voted in a later one (Ongaro's dissertation,
§6.4). Then nothing was committed anywhere beyond the leader's high watermark when the read began.

A fetch is no such proof, because it may have been sent before the read. The leader therefore sends
a BeginQuorumEpoch, which tells a voter nothing new; its answer belongs to this one call.
"""

from __future__ import annotations

from raft.messages import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from raft.replica import RaftReplica
from raft.roles import NEVER, Asking, Leader, ReadRound
from stele.errors import ErrorCode


def begin(replica: RaftReplica, now: float, state: Leader) -> int:
    """Ask for a confirmation; the number that ``confirmed`` reaches once it is there.

    A round that is under way began too early for this read: it waits for the next one.
    """
    reads = state.reads
    if reads.round is None:
        reads.round = _new_round(replica, now)
        reads.wanted = reads.confirmed + 1
    else:
        reads.wanted = reads.confirmed + 2
    return reads.wanted


def _new_round(replica: RaftReplica, now: float) -> ReadRound:
    return ReadRound(Asking.all(replica.voters.others(replica.local.id), now))


def advance(replica: RaftReplica, now: float, state: Leader) -> None:
    """End the round that a majority has answered, begin the next, and ask the voters that are
    due."""
    reads = state.reads
    while reads.round is not None and _is_confirmed(replica, reads.round):
        reads.confirmed += 1
        reads.round = _new_round(replica, now) if reads.wanted > reads.confirmed else None
    if reads.round is not None:
        _ask(replica, now, reads.round)


def _is_confirmed(replica: RaftReplica, current: ReadRound) -> bool:
    """Whether a majority of the present voters has answered. Any set that could elect another
    leader differs from this one by one voter at most."""
    heard = {*current.asking.answered, replica.local.id}
    return sum(voter in heard for voter in replica.voters.ids) >= replica.voters.majority


def _ask(replica: RaftReplica, now: float, current: ReadRound) -> None:
    for voter in replica.voters.others(replica.local.id):
        current.asking.due_at.setdefault(voter, now)  # it has joined since the round began
    for voter in current.asking.due(now):
        if voter not in replica.voters.ids:
            continue
        request = BeginQuorumEpochRequest(
            leader_id=replica.local.id,
            epoch=replica.epoch,
            voter_id=voter,
            voter_directory_id=replica.voters.directory_id(voter),
        )
        current.calls[replica.call(voter, request)] = voter


def on_answer(
    replica: RaftReplica, now: float, request_id: int, message: BeginQuorumEpochResponse | None
) -> None:
    """A voter answered one of these calls, or could not be reached (``None``)."""
    state = replica.leading
    if state is None or (current := state.reads.round) is None:
        return
    voter = current.calls.pop(request_id, None)
    if voter is None:
        return  # of an earlier round, or an announcement
    if message is not None and message.error is ErrorCode.NONE and message.epoch == replica.epoch:
        current.asking.answer(voter)
    else:
        current.asking.fail(voter, now, replica.timing)


def ask_at(state: Leader) -> float:
    """When a voter is to be asked again."""
    return NEVER if state.reads.round is None else state.reads.round.asking.deadline
