"""Replication on the leader's side: fetches are answered or parked."""

from __future__ import annotations

from raft.messages import EpochEnd, FetchRequest, FetchResponse, SnapshotId
from raft.progress import ParkedFetch, Progress
from raft.quorum import NO_DIRECTORY, ReplicaKey
from raft.ready import ReadRange
from raft.replica import InvariantError, RaftReplica
from raft.roles import Leader
from stele.errors import ErrorCode

OBSERVER_SESSION_S = 300.0  # an observer that has not fetched for so long is forgotten


def on_fetch_request(
    replica: RaftReplica, now: float, request_id: int, message: FetchRequest
) -> None:
    state = replica.leading
    if message.epoch < replica.epoch:
        replica.refuse_fetch(request_id, ErrorCode.FENCED_LEADER_EPOCH)
    elif message.epoch > replica.epoch:
        replica.refuse_fetch(request_id, ErrorCode.UNKNOWN_LEADER_EPOCH)
    elif state is None:
        replica.refuse_fetch(request_id, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif message.replica_id == replica.local.id or message.fetch_offset < 0:
        replica.refuse_fetch(request_id, ErrorCode.INVALID_REQUEST)
    else:
        _serve_fetch(replica, now, state, request_id, message)


def _serve_fetch(
    replica: RaftReplica, now: float, state: Leader, request_id: int, message: FetchRequest
) -> None:
    for stale in state.parking.take_replaced(message.replica_id, message.replica_directory_id):
        _answer(replica, stale.request_id, stale.message)
    key = ReplicaKey(message.replica_id, message.replica_directory_id or NO_DIRECTORY)
    progress = progress_of(replica, now, state, key)
    diverging, snapshot = _divergence(replica, message)
    if diverging is not None or snapshot is not None:
        progress.contact(now)
        replica.reply(
            request_id,
            FetchResponse(
                ErrorCode.NONE,
                replica.local.id,
                replica.epoch,
                replica.high_watermark,
                replica.log.start_offset,
                diverging,
                snapshot,
            ),
        )
        return
    progress.fetched(message.fetch_offset, replica.log.end_offset, now)
    deadline = now + message.max_wait_ms / 1000
    state.parking.park(ParkedFetch(request_id, message, deadline))
    answer_parked(replica, state)
    expire_parked(replica, now, state)


def progress_of(replica: RaftReplica, now: float, state: Leader, key: ReplicaKey) -> Progress:
    """The leader's knowledge of the replica that sent a request.

    If the record of the voters does not name a voter's directory, the first directory that fetches
    in an epoch counts as the voter's (and goes into the record, ``raft.membership``): no other disk
    may acknowledge in its name.
    """
    progress = state.progress.get(key.id)
    if progress is not None:
        recorded = replica.voters.directory_id(key.id)
        if {recorded, progress.directory_id} <= {NO_DIRECTORY, key.directory_id}:
            progress.directory_id = key.directory_id
            return progress
    return state.observers.setdefault(key, Progress(now))


def _divergence(
    replica: RaftReplica, message: FetchRequest
) -> tuple[EpochEnd | None, SnapshotId | None]:
    """The divergence of the fetcher's log (KIP-595), or the snapshot that it needs (KIP-630).

    Both are None for a valid fetch.
    """
    log = replica.log
    end = log.end_offset_for(message.last_fetched_epoch)
    if message.fetch_offset >= log.start_offset:
        if end.epoch == message.last_fetched_epoch and end.end_offset >= message.fetch_offset:
            return None, None
        if end.end_offset >= log.start_offset:
            return end, None
    if replica.snapshot is None:
        raise InvariantError(f"the log {log} does not begin at 0, and there is no snapshot")
    return None, replica.snapshot


def answer_parked(replica: RaftReplica, state: Leader) -> None:
    """Advance the high watermark, and answer every fetch for which there is news."""
    for fetch in replica.commit(state):
        _answer(replica, fetch.request_id, fetch.message)


def expire_parked(replica: RaftReplica, now: float, state: Leader) -> None:
    for fetch in state.parking.take_expired(now):
        _answer(replica, fetch.request_id, fetch.message)


def forget_observers(now: float, state: Leader) -> None:
    silent = [
        key
        for key, progress in state.observers.items()
        if now - progress.last_contact > OBSERVER_SESSION_S
    ]
    for key in silent:
        del state.observers[key]


def _answer(replica: RaftReplica, request_id: int, message: FetchRequest) -> None:
    read = None
    if message.fetch_offset < replica.log.end_offset:
        read = ReadRange(message.fetch_offset, message.max_bytes)
    response = FetchResponse(
        ErrorCode.NONE,
        replica.local.id,
        replica.epoch,
        replica.high_watermark,
        replica.log.start_offset,
    )
    replica.reply(request_id, response, read)


def tick(replica: RaftReplica, now: float) -> None:
    """Take the steps of a leader that are due."""
    if (state := replica.leading) is not None:
        expire_parked(replica, now, state)
        forget_observers(now, state)
