"""The node that a follower or an observer fetches from: whether it answers, which one is next."""

from __future__ import annotations

from raft import election
from raft.messages import FetchResponse, FetchSnapshotResponse
from raft.replica import RaftReplica
from raft.roles import Fetching, Follower, Observer

MAX_DOWNLOAD_FAILURES = 3  # in a row, until the leader is asked again for the next snapshot


def heard(replica: RaftReplica, now: float) -> None:
    """The leader answered."""
    match replica.state:
        case Follower() as state:
            election.heard_from_leader(replica, now, state)
        case Observer() as state:
            replica.leader_gone = False
            state.last_contact = now
            state.doubt_at = now + replica.timing.fetch_timeout_s


def unreachable(replica: RaftReplica, now: float, target: int) -> None:
    """A fetch from ``target`` got no answer."""
    fetching = replica.fetching
    if fetching is None:
        return
    fetching.failed(now, replica.timing)
    if fetching.failures >= MAX_DOWNLOAD_FAILURES:
        fetching.download = None
    if fetching.download is None:  # else the next piece may come from the same node
        _ask_next_voter(replica, target)


def refused(
    replica: RaftReplica,
    now: float,
    fetching: Fetching,
    sender: int,
    message: FetchResponse | FetchSnapshotResponse,
) -> None:
    """``sender`` serves no fetch; its answer may name the leader."""
    current = message.epoch == replica.epoch
    if current and sender == replica.leader_id and message.leader_id is None:
        election.leader_ended(replica, now)  # no other replica can lead this epoch
    hint = message.leader_id if current and message.leader_id != sender else None
    if hint == replica.local.id:
        hint = None  # it led this epoch, and has given up
    if isinstance(replica.state, Observer) and hint is not None:
        fetching.redirect(hint)
    elif replica.fetching is fetching:
        fetching.failed(now, replica.timing)
        _ask_next_voter(replica, sender)


def _ask_next_voter(replica: RaftReplica, after: int) -> None:
    """An observer asks other nodes; a voter waits for its leader, or stands for election."""
    if isinstance(replica.state, Observer):
        nodes = replica.whom_to_ask
        position = nodes.index(after) + 1 if after in nodes else 0
        replica.state.fetching.target = nodes[position % len(nodes)]


def tick(replica: RaftReplica, now: float) -> None:
    """An observer that has not heard its leader for too long forgets it."""
    state = replica.state
    if isinstance(state, Observer) and now >= state.doubt_at:
        replica.leader_gone = replica.leader_id is not None
        state.doubt_at = now + replica.timing.fetch_timeout_s
