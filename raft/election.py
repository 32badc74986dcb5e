"""Votes, and the beginning and end of epochs: how a voter answers them and how it stands."""

from __future__ import annotations

import logging

from raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from raft.quorum import NO_DIRECTORY, ReplicaKey
from raft.replica import RaftReplica
from raft.roles import (
    NEVER,
    Campaigner,
    Candidate,
    Follower,
    Leader,
    Observer,
    Prospective,
    Resigned,
    Standby,
    Unattached,
)
from stele.errors import ErrorCode

_log = logging.getLogger(__name__)


# ------------------------------------------------------------------------------ requests


def on_vote_request(
    replica: RaftReplica, now: float, request_id: int, message: VoteRequest
) -> None:
    """Any candidate may get the vote, even one that is no voter by this replica's log.

    This log may be behind. Example: a voter joins, and only a majority has its record; the new
    voter may be the only one that can be elected, and it may need this very vote. The vote does no
    harm: an election is decided by the candidate's set of voters, its log, and one vote per replica
    and epoch.
    """
    candidate = ReplicaKey(message.candidate_id, message.candidate_directory_id or NO_DIRECTORY)
    error = _vote_error(replica, candidate, message)
    granted = False
    if error is ErrorCode.NONE and not _disturbs(replica, now, candidate, message):
        replica.observe(now, message.epoch, None)
        if message.pre_vote:
            granted = _would_vote(replica, now, message)
            if granted:
                _defer(replica, now)
        else:
            granted = _vote(replica, now, candidate, message)
    replica.reply(request_id, VoteResponse(error, replica.known_leader, replica.epoch, granted))


def _vote_error(replica: RaftReplica, candidate: ReplicaKey, message: VoteRequest) -> ErrorCode:
    """Whether this replica answers the request for a vote.

    A request that names this directory comes from a candidate for which this replica is a voter, so
    it answers, even if it does not know that yet. A request that names only the node may mean a
    disk that was here before and has made promises: then this replica answers only if it is a voter
    by its own log (``is_founder``).
    """
    asked = ReplicaKey(message.voter_id, message.voter_directory_id or NO_DIRECTORY)
    by_directory = asked.directory_id != NO_DIRECTORY
    if not asked.matches(replica.local) or not (by_directory or replica.may_stand):
        return ErrorCode.INVALID_VOTER_KEY
    if candidate.id == replica.local.id:
        return ErrorCode.INCONSISTENT_VOTER_SET
    if message.epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def _disturbs(
    replica: RaftReplica, now: float, candidate: ReplicaKey, message: VoteRequest
) -> bool:
    """Whether this is a pre-vote whose epoch must not be taken in.

    A removed voter does not hear of its removal from replicas that no longer count it, and may be
    in a later epoch, in which it stood in vain. It must not depose a leader that others hear. It
    can follow again when the others reach its epoch.
    """
    return message.pre_vote and candidate not in replica.voters and _hears_a_leader(replica, now)


def _vote(replica: RaftReplica, now: float, candidate: ReplicaKey, message: VoteRequest) -> bool:
    """Give the epoch's one vote, if it is free and the candidate's log is no worse.

    The vote is free while this replica has neither voted in the epoch nor heard of its leader. So
    the replica neither follows, stands nor leads in the epoch: it is unattached, prospective or an
    observer.
    """
    if replica.voted is not None:
        return replica.voted == candidate
    if replica.leader_id is not None:
        return False
    if not replica.log.is_up_to_date(message.last_epoch, message.last_offset):
        # Let the better log stand soon: the candidate may not find a majority at all.
        _await_leader(replica, now, replica.timing.suspicion(replica.rng))
        return False
    replica.give_vote(candidate)
    _await_leader(replica, now, replica.timing.election_timeout(replica.rng))
    return True


def _await_leader(replica: RaftReplica, now: float, delay: float) -> None:
    if not isinstance(replica.state, Observer):  # an observer always looks for one
        replica.become_unattached(now, delay)


def _would_vote(replica: RaftReplica, now: float, message: VoteRequest) -> bool:
    """Whether a vote would be given in the next epoch. Promises nothing (KIP-996).

    It would not while this replica hears the leader. Otherwise a single voter that lost its
    connection would depose the leader. If two candidates ask each other, the one with the worse
    log gives way, then the one with the higher id, so that they do not split the votes. A candidate
    that has already refused this replica is judged by its log alone.
    """
    if _hears_a_leader(replica, now):
        return False
    state = replica.state
    theirs = (message.last_epoch, message.last_offset)
    if isinstance(state, Prospective) and message.candidate_id not in state.tally.rejected:
        ours = (replica.log.last_epoch, replica.log.end_offset)
        return (*theirs, -message.candidate_id) > (*ours, -replica.local.id)
    return replica.log.is_up_to_date(*theirs)


def _hears_a_leader(replica: RaftReplica, now: float) -> bool:
    """Whether this replica leads, or has no reason to doubt that its leader does."""
    state = replica.state
    if isinstance(state, Follower | Observer):
        suspects = isinstance(state, Follower) and state.suspects
        silent = now - state.last_contact >= replica.timing.fetch_timeout_s
        return not suspects and not silent and not replica.leader_gone
    return replica.leading is not None


def _defer(replica: RaftReplica, now: float) -> None:
    """Give the candidate that got our pre-vote the time to win."""
    state = replica.state
    if isinstance(state, Standby):
        delay = replica.timing.suspicion(replica.rng) + patience(replica)
        state.stand_at = max(state.stand_at, now + delay)


def on_begin_epoch_request(
    replica: RaftReplica, now: float, request_id: int, message: BeginQuorumEpochRequest
) -> None:
    asked = ReplicaKey(message.voter_id, message.voter_directory_id or NO_DIRECTORY)
    error = ErrorCode.NONE
    if not asked.matches(replica.local):
        error = ErrorCode.INVALID_VOTER_KEY
    elif message.epoch < replica.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif not _accept_leader(replica, now, message.leader_id, message.epoch):
        error = ErrorCode.INVALID_REQUEST
    response = BeginQuorumEpochResponse(error, replica.known_leader, replica.epoch)
    replica.reply(request_id, response)


def _accept_leader(replica: RaftReplica, now: float, leader_id: int, epoch: int) -> bool:
    if leader_id == replica.local.id:
        return False
    replica.observe(now, epoch, leader_id)
    if replica.leader_id != leader_id:
        _log.error("%s says it leads epoch %d, which %s leads", leader_id, epoch, replica.leader_id)
        return False
    match replica.state:
        case Prospective() if not replica.leader_gone:
            replica.become_follower(now, leader_id)
        case Follower() as state:
            heard_from_leader(replica, now, state)
        case Observer(fetching=fetching) if fetching.target != leader_id:
            fetching.redirect(leader_id)
    return True


def on_end_epoch_request(
    replica: RaftReplica, now: float, request_id: int, message: EndQuorumEpochRequest
) -> None:
    error = ErrorCode.NONE
    if message.epoch < replica.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif message.leader_id == replica.local.id:
        error = ErrorCode.INVALID_REQUEST
    else:
        replica.observe(now, message.epoch, message.leader_id)
        if replica.leader_id == message.leader_id:
            leader_ended(replica, now, message.preferred_successors)
        else:
            error = ErrorCode.INVALID_REQUEST
    response = EndQuorumEpochResponse(error, replica.known_leader, replica.epoch)
    replica.reply(request_id, response)


def leader_ended(replica: RaftReplica, now: float, successors: tuple[int, ...] = ()) -> None:
    """The leader of this epoch has given up: stand for election, later if other voters are
    preferred."""
    known, replica.leader_gone = replica.leader_gone, True
    if known and not successors:
        return  # a refused fetch may come before the EndQuorumEpoch that names the successors
    timing = replica.timing
    delay = timing.suspicion(replica.rng)
    if replica.local.id in successors:
        position = successors.index(replica.local.id)
        delay = 0.0 if position == 0 else delay + timing.suspicion_max_s * (position - 1)
    match replica.state:
        case Unattached() as state:
            state.stand_at = min(state.stand_at, now + delay)
        case Follower() | Prospective():
            replica.become_unattached(now, delay)


# ---------------------------------------------------------------------------- contact


def heard_from_leader(replica: RaftReplica, now: float, state: Follower) -> None:
    state.last_contact = now
    state.suspects = False
    state.stand_at = now + replica.timing.fetch_timeout_s


def leader_unreachable(replica: RaftReplica, now: float) -> None:
    """The connection to the leader broke: unless it heals at once, ask for pre-votes."""
    state = replica.state
    if isinstance(state, Follower) and not state.suspects:
        state.suspects = True
        state.stand_at = min(state.stand_at, now + replica.timing.suspicion(replica.rng))


# ----------------------------------------------------------------------------- standing


def ask_for_votes(replica: RaftReplica, now: float, state: Campaigner) -> None:
    """Call every voter that is due. A candidate's calls wait for its own vote to be durable."""
    for voter in state.asking.due(now):
        replica.call(
            voter,
            VoteRequest(
                candidate_id=replica.local.id,
                candidate_directory_id=replica.local.directory_id,
                voter_id=voter,
                voter_directory_id=replica.voters.directory_id(voter),
                epoch=replica.epoch,
                last_offset=replica.log.end_offset,
                last_epoch=replica.log.last_epoch,
                pre_vote=isinstance(state, Prospective),
            ),
        )


def on_vote_response(replica: RaftReplica, now: float, voter: int, message: VoteResponse) -> None:
    _observe(replica, now, message)
    state = replica.state
    if isinstance(state, Campaigner):
        if message.error not in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH):
            _log.warning("voter %d refuses to vote: %s", voter, message.error.name)
        state.asking.answer(voter)
        state.tally.record(voter, message.error is ErrorCode.NONE and message.granted)
        if isinstance(state, Prospective) and voter == message.leader_id == replica.known_leader:
            _give_up(replica, now, state)  # the leader itself answers: it lives, and leads
        else:
            judge(replica, now)


def _observe(
    replica: RaftReplica,
    now: float,
    message: VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse,
) -> None:
    """Take in the epoch that a voter answers. A later one, or a leader of this one, ends the
    candidacy or leadership of this replica.

    If another disk answers in the voter's place, its epoch counts only if it has a leader: an epoch
    in which such a replica merely stood must not depose anybody.
    """
    if message.error is not ErrorCode.INVALID_VOTER_KEY or message.leader_id is not None:
        replica.observe(now, message.epoch, message.leader_id)


def on_vote_failed(replica: RaftReplica, now: float, voter: int) -> None:
    state = replica.state
    if isinstance(state, Campaigner):
        state.asking.fail(voter, now, replica.timing)
        judge(replica, now)


def judge(replica: RaftReplica, now: float) -> None:
    """Draw the conclusion from the votes so far."""
    match replica.state:
        case Prospective() as state:
            _judge_pre_vote(replica, now, state)
        case Candidate() as state:
            _judge_vote(replica, now, state)


def _judge_pre_vote(replica: RaftReplica, now: float, state: Prospective) -> None:
    if state.tally.won:
        replica.become_candidate(now)
    elif state.tally.lost or state.asking.exhausted or now >= state.give_up_at:
        _give_up(replica, now, state)


def _judge_vote(replica: RaftReplica, now: float, state: Candidate) -> None:
    if state.tally.won:
        replica.become_leader(now, sorted(state.tally.granted))
    elif now >= stand_at(replica, state.stand_again_at):
        replica.become_prospective(now)
    elif (state.tally.lost or _stalled(replica, state)) and not state.lost:
        state.lost = True
        replica.losses += 1
        backoff = replica.timing.election_backoff(replica.losses, replica.rng)
        # A vote may still be on its way through a slow disk.
        state.stand_again_at = min(state.stand_again_at, now + backoff + patience(replica))


def _stalled(replica: RaftReplica, state: Candidate) -> bool:
    """Every voter answered or is out of reach, and no majority granted: stop waiting."""
    return replica.promises_durable and state.asking.exhausted


def _give_up(replica: RaftReplica, now: float, state: Prospective) -> None:
    if replica.leader_id is not None and not replica.leader_gone:
        replica.return_to_leader(now, state.last_contact)
    else:
        replica.losses += 1
        replica.become_unattached(now, replica.timing.election_backoff(replica.losses, replica.rng))


def stand_at(replica: RaftReplica, due_at: float) -> float:
    """When a replica whose time has come stands: not while its epoch or vote is being written.

    No other voter gets the candidacy before the disk has it. If the replica gave up an epoch that
    the disk is about to have, for a further epoch that the disk has to take as well, a slow disk
    would never let a leader be elected.
    """
    return due_at if replica.promises_durable else NEVER


def promise_kept(replica: RaftReplica) -> None:
    """The disk has the last epoch and vote. Other voters hear of them only now, so the election
    timeouts begin only now.

    A candidate waits for the votes of other voters, whose disks may be as slow as this one.
    """
    match replica.state:
        case Candidate() as state:
            state.stand_again_at += replica.sync_took_s + patience(replica)
        case Unattached() as state if replica.voted is not None:
            state.stand_at += replica.sync_took_s


def patience(replica: RaftReplica) -> float:
    """The time that another replica's disk may take, estimated by this disk's last sync. It is
    bounded, because one stall says nothing about the next election."""
    return min(2 * replica.sync_took_s, 2 * replica.timing.election_timeout_s)


def count_own_vote(replica: RaftReplica, now: float) -> None:
    """A candidate's own vote counts once it would survive a crash."""
    state = replica.state
    if isinstance(state, Candidate) and replica.promises_durable:
        state.tally.record(replica.local.id, granted=True)
        judge(replica, now)


def tick(replica: RaftReplica, now: float) -> None:
    """Take the steps of a voter that are due."""
    state = replica.state
    if isinstance(state, Standby) and now >= stand_at(replica, state.stand_at):
        if replica.may_stand:
            replica.become_prospective(now)
        else:
            replica.become_observer(now)  # a leader that has removed itself
    judge(replica, now)
    leading = replica.leading
    if leading is not None and now >= check_quorum_at(replica, leading):
        _log.warning("epoch %d: no majority fetches any more, resigning", replica.epoch)
        replica.become_resigned(now)


def check_quorum_at(replica: RaftReplica, state: Leader) -> float:
    """When the leader has to resign unless a majority fetches. A fetch proves that its sender has
    written and synced the last answer."""
    heard_at = state.quorum_heard_at(replica.voters)
    return heard_at + replica.timing.fetch_timeout_s + patience(replica)


# ------------------------------------------------------------------- announcing an epoch


def announce_end(replica: RaftReplica, now: float, state: Resigned) -> None:
    """Announce the end of the epoch to the voters."""
    for voter in state.asking.due(now):
        request = EndQuorumEpochRequest(replica.local.id, replica.epoch, state.successors)
        replica.call(voter, request)


def announce_begin(replica: RaftReplica, now: float, state: Leader) -> None:
    """Announce the epoch to those voters that do not fetch in it."""
    for voter, progress in state.progress.items():
        if progress.begin_at > now:
            continue
        if not progress.has_fetched or now >= _silent_at(replica, progress.last_contact):
            replica.call(
                voter,
                BeginQuorumEpochRequest(
                    leader_id=replica.local.id,
                    epoch=replica.epoch,
                    voter_id=voter,
                    voter_directory_id=replica.voters.directory_id(voter),
                ),
            )
            progress.begin_at = NEVER
        else:
            progress.begin_at = _silent_at(replica, progress.last_contact)


def _silent_at(replica: RaftReplica, last_contact: float) -> float:
    return last_contact + replica.timing.fetch_timeout_s / 2


def on_announced(
    replica: RaftReplica,
    now: float,
    voter: int,
    message: BeginQuorumEpochResponse | EndQuorumEpochResponse | None,
) -> None:
    """A voter answered an announcement, or could not be reached (``None``)."""
    if message is not None:
        _observe(replica, now, message)
    match replica.state:
        case Leader(progress=progress):
            if voter in progress:  # else it was removed
                progress[voter].begin_at = now + replica.timing.fetch_timeout_s / 4
        case Resigned(asking=asking):
            if message is None:
                asking.fail(voter, now, replica.timing)
            else:
                asking.answer(voter)
