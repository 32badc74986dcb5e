"""Changes of the quorum's voters, one voter at a time (Ongaro's dissertation, §4; KIP-853).

A change is a record in the log: it counts from the moment it is appended, and is certain when it is
committed. Any majority of a set and any majority of the next set have a voter in common, so two
leaders cannot be elected in one epoch while some replicas use one set and some the other. That
holds only for sets that differ by one voter. So a leader appends a set only when the set before it
is committed, and when it has committed a record of its own epoch. Until then a set of an earlier
leader, which this one has never seen, could still reach a majority of its own (Ongaro, raft-dev,
July 2015).

A voter is a node and a directory. The first voters come from the configuration, which names nodes
only: then any directory of the node is the voter's, as in a quorum that knows no directories, and
an operator has to see to it that no emptied disk votes. A leader ends that as soon as it can. The
first one of all puts the configuration's set into the log, its own directory in it. Then each
voter's first fetch tells the leader which directory it has; the leader counts only that one, and
puts it into the record. This is safe because the nodes and so the majorities stay the same, and
because from then on the leader counts fewer replicas than before, never more. A node with an
emptied disk is no voter then: nobody asks for its vote, and it fetches as an observer. Operators
have to ensure two things: two disks of one node never run at a time, and a disk that replaces
another is formatted as one that joins (``is_founder`` is false).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from raft import replication
from raft.messages import Batch, VotersChange
from raft.quorum import NO_DIRECTORY, ReplicaKey, Voter, VoterSet
from raft.replica import RaftReplica
from raft.roles import NEVER, Adding, Candidate, Follower, Leader, Observer, Unattached
from raft.voter_history import NO_RECORD
from stele.errors import ErrorCode
from stele.ids import encode_uuid

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AddVoter:
    """Make an observer a voter, once it has caught up; give that up after ``timeout_s``."""

    voter: Voter  # its directory id is known
    timeout_s: float


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoter:
    """Give a voter another endpoint or other features, or the directory id that was not known."""

    voter: Voter


VoterChange = AddVoter | RemoveVoter | UpdateVoter


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a change cannot be made now, for people, and with Kafka's error."""

    error: ErrorCode
    message: str


# ------------------------------------------------------------------------- what is refused


def refusal(
    replica: RaftReplica, now: float, change: VoterChange, *, has_room: bool
) -> Refusal | None:
    """Why ``change`` cannot begin now; None when it can, or is true already (an UpdateVoter)."""
    state = replica.leading
    if state is None:
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
    passing = _refused_now(replica, state)
    if passing is not None:
        return passing
    if not has_room:
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the leader's disk is full")
    return _refused_change(replica, state, now, change)


def _refused_now(replica: RaftReplica, state: Leader) -> Refusal | None:
    """A refusal that passes: ask again."""
    if state.transfer is not None:
        message = f"leadership is being handed to voter {state.transfer.to}; ask the next leader"
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
    if state.adding is not None:
        message = f"voter {state.adding.voter.id} is being added; try again when that is done"
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, message)
    if not _is_established(replica, state):
        message = "the leader is new and has committed nothing yet; try again"
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, message)
    if replica.voters_pending:
        message = "an earlier change of the voters is not committed yet; try again"
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, message)
    return None


def _refused_change(
    replica: RaftReplica, state: Leader, now: float, change: VoterChange
) -> Refusal | None:
    match change:
        case AddVoter(voter):
            return _refused_add(replica, voter)
        case RemoveVoter(key):
            return _refused_remove(replica, state, now, key)
        case UpdateVoter(voter):
            return _refused_update(replica, state, voter)


def _refused_add(replica: RaftReplica, voter: Voter) -> Refusal | None:
    if voter.key.directory_id == NO_DIRECTORY:
        return Refusal(ErrorCode.INVALID_REQUEST, "a new voter needs a directory id")
    if replica.voters.get(voter.id) is not None:
        message = f"node {voter.id} is a voter; to give it another disk, remove that voter first"
        return Refusal(ErrorCode.DUPLICATE_VOTER, message)
    return None


def _refused_remove(
    replica: RaftReplica, state: Leader, now: float, key: ReplicaKey
) -> Refusal | None:
    if key not in replica.voters:
        return _not_found(replica, key)
    if len(replica.voters) == 1:
        message = f"node {key.id} is the last voter: add another one first"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    rest = replica.voters.without(key.id)
    heard = [voter for voter in rest.ids if _is_heard(replica, state, now, voter)]
    if len(heard) < rest.majority:
        message = f"of the voters {list(rest.ids)} that would be left, only {heard} are heard"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None


def _is_heard(replica: RaftReplica, state: Leader, now: float, voter: int) -> bool:
    progress = state.progress.get(voter)
    if progress is None:
        return voter == replica.local.id
    silence_s = now - progress.last_contact
    return progress.has_fetched and silence_s <= replica.timing.fetch_timeout_s


def _refused_update(replica: RaftReplica, state: Leader, voter: Voter) -> Refusal | None:
    if voter.key.directory_id == NO_DIRECTORY:
        return Refusal(ErrorCode.INVALID_REQUEST, "an update needs the voter's directory id")
    progress = state.progress.get(voter.id)
    seen = replica.local if progress is None else ReplicaKey(voter.id, progress.directory_id)
    if voter.key not in replica.voters or not voter.key.matches(seen):
        return _not_found(replica, voter.key)
    return None


def _not_found(replica: RaftReplica, key: ReplicaKey) -> Refusal:
    known = replica.voters.get(key.id)
    if known is None:
        message = f"node {key.id} is no voter; the voters are {list(replica.voters.ids)}"
    else:
        message = (
            f"voter {key.id} has the directory {encode_uuid(known.key.directory_id)},"
            f" not {encode_uuid(key.directory_id)}"
        )
    return Refusal(ErrorCode.VOTER_NOT_FOUND, message)


# ------------------------------------------------------------------------ the leader's changes


def begin(replica: RaftReplica, now: float, change: VoterChange, *, has_room: bool) -> None:
    """Begin a change that is not refused. Raises ValueError for one that is."""
    if (refused := refusal(replica, now, change, has_room=has_room)) is not None:
        raise ValueError(refused.message)
    replica.has_room = has_room
    state = replica.leading
    assert state is not None  # else it is refused
    match change:
        case AddVoter(voter, timeout_s):
            state.adding = Adding(voter, now + timeout_s, replica.log.end_offset, now)
        case RemoveVoter(key):
            _append(replica, now, state, replica.voters.without(key.id))
        case UpdateVoter(voter):
            _append(replica, now, state, replica.voters.with_voter(voter))


def _append(replica: RaftReplica, now: float, state: Leader, voters: VoterSet) -> None:
    """Make ``voters`` the quorum, unless they are, and count by them from here on.

    Without room for that nothing happens, and ``advance`` will come again.
    """
    is_first = replica.history.latest_offset == NO_RECORD
    if (voters == replica.voters and not is_first) or not replica.has_room:
        return
    change = VotersChange(voters, is_first)
    replica.append([Batch(replica.log.end_offset, change.count, replica.epoch, change)])
    _log.info("epoch %d: the voters are to be %s", replica.epoch, voters)
    for gone in [voter for voter in state.progress if voter not in voters.ids]:
        progress = state.progress.pop(gone)
        if progress.has_fetched:
            state.observers[ReplicaKey(gone, progress.directory_id)] = progress
    for voter in voters.voters:
        if voter.id != replica.local.id and voter.id not in state.progress:
            state.progress[voter.id] = state.observers.pop(voter.key)  # it has caught up there
    replication.answer_parked(replica, state)


def advance(replica: RaftReplica, now: float, state: Leader) -> None:
    """The steps that a leader takes by itself: the first record, learning directory ids, adding a
    voter that has caught up, and resigning when it is no voter any more."""
    if not replica.is_voter and not replica.voters_pending:
        _log.info("epoch %d: no voter any more, resigning", replica.epoch)
        preferred = None if state.transfer is None else state.transfer.to
        replica.become_resigned(now, preferred=preferred)
        return
    if replica.history.latest_offset == NO_RECORD:
        _append(replica, now, state, _learned(replica, state))
    if state.adding is not None and now >= state.adding.give_up_at:
        _log.warning("voter %s has not caught up in time: not added", state.adding.voter)
        state.adding = None
    if state.transfer is None and _is_established(replica, state):
        if not replica.voters_pending:
            _append(replica, now, state, _learned(replica, state))
        if state.adding is not None and not replica.voters_pending:
            _add_if_caught_up(replica, now, state, state.adding)


def _is_established(replica: RaftReplica, state: Leader) -> bool:
    """Whether a record of this leader's own epoch is committed."""
    return replica.high_watermark > state.start_offset


def _learned(replica: RaftReplica, state: Leader) -> VoterSet:
    """The voters, with the directory ids that were unknown and are known by now."""
    voters = replica.voters
    for voter in voters.voters:
        if voter.key.directory_id == NO_DIRECTORY:
            progress = state.progress.get(voter.id)
            seen = replica.local.directory_id if progress is None else progress.directory_id
            voters = voters.with_voter(replace(voter, key=ReplicaKey(voter.id, seen)))
    return voters


def _add_if_caught_up(replica: RaftReplica, now: float, state: Leader, adding: Adding) -> None:
    """Let a voter to be catch up in rounds, each to the log's end at its begin, until a round is
    short (Ongaro, §4.2.1).

    A voter that joins is then close enough to take part in the next commit.
    """
    timing, end_offset = replica.timing, replica.log.end_offset
    progress = state.observers.get(adding.voter.key)
    if progress is None or progress.end_offset < adding.round_end_offset:
        return
    if now - progress.last_contact > timing.fetch_timeout_s:
        return  # it was here, and is not any more
    if progress.end_offset == end_offset or now - adding.round_began_at < timing.election_timeout_s:
        _append(replica, now, state, replica.voters.with_voter(adding.voter))
        if adding.voter.key in replica.voters:
            state.adding = None
    else:
        adding.round_end_offset, adding.round_began_at = end_offset, now


def minds_room(replica: RaftReplica) -> bool:
    """Whether the next event may have this replica change the voters by itself.

    It leads, or may be elected, and a voter is being added or a directory id must be learned.
    """
    if isinstance(replica.state, Candidate):
        return True
    state = replica.leading
    if state is None:
        return False
    history = replica.history
    unknown = history.latest.has_unknown_disks or history.latest_offset == NO_RECORD
    return state.adding is not None or unknown


def give_up_at(state: Leader) -> float:
    return NEVER if state.adding is None else state.adding.give_up_at


# -------------------------------------------------------------------------- everybody's role


def settle_role(replica: RaftReplica, now: float) -> None:
    """Become a voter or an observer, as the latest set says.

    A replica in the set takes part at once: it may be needed to commit that very record. A replica
    that is not in the set takes part until it knows that the set is committed: see
    ``RaftReplica.may_stand``. Neither matters for safety: candidates and leaders decide whose votes
    and acknowledgements count.
    """
    match replica.state:
        case Observer(last_contact=last_contact) if replica.may_stand:
            leader_id = replica.known_leader
            if leader_id is None:
                replica.become_unattached(now, replica.timing.election_timeout(replica.rng))
            else:
                replica.become_follower(now, leader_id, last_contact)
        case Follower(last_contact=last_contact) if not replica.may_stand:
            replica.become_observer(now, last_contact)
        case Unattached() if not replica.may_stand:
            replica.become_observer(now)
