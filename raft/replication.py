"""The log's way from the leader to the others: fetches asked, answered, parked and taken in."""

from __future__ import annotations

import logging

from raft import election, snapshots
from raft.messages import (
    Batch,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    SnapshotId,
)
from raft.progress import ParkedFetch, Progress
from raft.quorum import NO_DIRECTORY, ReplicaKey
from raft.ready import ReadRange
from raft.replica import InvariantError, Replica
from raft.roles import NEVER, Fetching, Follower, Leader, Observer, Unattached
from stele.errors import ErrorCode

_log = logging.getLogger(__name__)

MAX_DOWNLOAD_FAILURES = 3  # in a row, until the leader is asked again what is to be fetched
OBSERVER_SESSION_S = 300.0  # an observer that has not fetched for so long is forgotten

# -------------------------------------------------------------------------- the leader's side


def on_fetch_request(replica: Replica, now: float, request_id: int, message: FetchRequest) -> None:
    state = replica.state
    if message.epoch < replica.epoch:
        replica.refuse_fetch(request_id, ErrorCode.FENCED_LEADER_EPOCH)
    elif message.epoch > replica.epoch:
        replica.refuse_fetch(request_id, ErrorCode.UNKNOWN_LEADER_EPOCH)
    elif not isinstance(state, Leader):
        replica.refuse_fetch(request_id, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif message.replica_id == replica.local.id or message.fetch_offset < 0:
        replica.refuse_fetch(request_id, ErrorCode.INVALID_REQUEST)
    else:
        _serve_fetch(replica, now, state, request_id, message)


def _serve_fetch(
    replica: Replica, now: float, state: Leader, request_id: int, message: FetchRequest
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


def progress_of(replica: Replica, now: float, state: Leader, key: ReplicaKey) -> Progress:
    """What the leader knows of the replica that has sent a request.

    Where the voters do not say which directory is the voter's, the first that fetches in an epoch
    is (and goes into the record, ``raft.membership``): what it has acknowledged, no other disk may
    acknowledge in its name.
    """
    progress = state.progress.get(key.id)
    if progress is not None:
        recorded = replica.voters.directory_id(key.id)
        if {recorded, progress.directory_id} <= {NO_DIRECTORY, key.directory_id}:
            progress.directory_id = key.directory_id
            return progress
    return state.observers.setdefault(key, Progress(now))


def _divergence(
    replica: Replica, message: FetchRequest
) -> tuple[EpochEnd | None, SnapshotId | None]:
    """Where the fetcher's log leaves this one (KIP-595), or the snapshot it needs (KIP-630).

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


def answer_parked(replica: Replica, state: Leader) -> None:
    """Commit what may be committed, and answer every fetch for which there is news."""
    for fetch in replica.commit(state):
        _answer(replica, fetch.request_id, fetch.message)


def expire_parked(replica: Replica, now: float, state: Leader) -> None:
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


def _answer(replica: Replica, request_id: int, message: FetchRequest) -> None:
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


# ------------------------------------------------------------------------- the fetcher's side


def fetch_at(replica: Replica) -> float:
    """When the next fetch is due: never while one is out, nor before the log is durable."""
    fetching = replica.fetching
    if fetching is None or fetching.request_id is not None:
        return NEVER
    if fetching.download is not None and fetching.download.complete:
        return NEVER  # the driver checks it
    if replica.log.durable_end_offset < replica.log.end_offset or not replica.promises_durable:
        return NEVER
    return fetching.retry_at


def fetch(replica: Replica, now: float) -> None:
    """Send the next fetch if it is due. It acknowledges the whole log, so that must be durable."""
    fetching = replica.fetching
    if fetching is None or now < fetch_at(replica):
        return
    if fetching.download is not None:
        snapshots.request_next(replica, fetching, fetching.download)
        return
    # One that doubts its leader asks for a sign of life, not for news.
    doubts = isinstance(replica.state, Follower) and replica.state.suspects
    max_wait_ms = 0 if doubts else replica.timing.fetch_max_wait_ms
    fetching.request_id = replica.call(fetching.target, _request(replica, max_wait_ms))


def ask_for_leader(replica: Replica) -> None:
    """A voter that has stood in vain asks one of those who are no voters as far as it knows, once
    before it stands again (KIP-853).

    It may have been removed, and all the others that it knows with it: none of them would answer.
    Of the answer only epoch and leader count.
    """
    state = replica.state
    if not isinstance(state, Unattached) or state.asked or not replica.losses:
        return
    durable = replica.log.durable_end_offset >= replica.log.end_offset and replica.promises_durable
    if not durable or not (others := replica.others_to_ask):
        return
    state.asked = True
    replica.call(others[replica.losses % len(others)], _request(replica, max_wait_ms=0))


def _request(replica: Replica, max_wait_ms: int) -> FetchRequest:
    return FetchRequest(
        replica_id=replica.local.id,
        replica_directory_id=replica.local.directory_id,
        epoch=replica.epoch,
        fetch_offset=replica.log.end_offset,
        last_fetched_epoch=replica.log.last_epoch,
        max_wait_ms=max_wait_ms,
        max_bytes=replica.timing.fetch_max_bytes,
        high_watermark=replica.high_watermark,
    )


def on_fetch_failed(replica: Replica, now: float, target: int) -> None:
    fetching = replica.fetching
    if fetching is None:
        return
    fetching.failed(now, replica.timing)
    if fetching.failures >= MAX_DOWNLOAD_FAILURES:
        fetching.download = None
    if fetching.download is None:  # else the next piece may come from the same node
        _ask_next_voter(replica, target)


def on_fetch_response(replica: Replica, now: float, sender: int, message: FetchResponse) -> None:
    news = replica.observe(now, message.epoch, message.leader_id)
    fetching, leader_id = replica.fetching, replica.leader_id
    if fetching is None or (news and leader_id is not None):
        return  # in another role, or already on the way to the leader
    if message.error is not ErrorCode.NONE:
        on_fetch_refused(replica, now, fetching, sender, message)
    elif message.epoch == replica.epoch and sender < 0 and leader_id is not None:
        fetching.redirect(leader_id)  # it was the leader who answered
    elif message.epoch != replica.epoch or message.leader_id != sender:
        _log.error("node %d answers a fetch in epoch %d with %s", sender, replica.epoch, message)
        fetching.failed(now, replica.timing)
    elif _take_in(replica, fetching, message):
        fetching.succeeded()
        heard(replica, now)
    else:
        fetching.failed(now, replica.timing)


def on_fetch_refused(
    replica: Replica,
    now: float,
    fetching: Fetching,
    sender: int,
    message: FetchResponse | FetchSnapshotResponse,
) -> None:
    current = message.epoch == replica.epoch
    if current and sender == replica.leader_id and message.leader_id is None:
        election.leader_ended(replica, now)  # the only one who could lead this epoch does not
    hint = message.leader_id if current and message.leader_id != sender else None
    if hint == replica.local.id:
        hint = None  # it led this epoch, and does so no more
    if isinstance(replica.state, Observer) and hint is not None:
        fetching.redirect(hint)
    elif replica.fetching is fetching:
        fetching.failed(now, replica.timing)
        _ask_next_voter(replica, sender)


def _ask_next_voter(replica: Replica, after: int) -> None:
    """An observer asks around; a voter waits for its leader, or stands itself."""
    if isinstance(replica.state, Observer):
        nodes = replica.whom_to_ask
        position = nodes.index(after) + 1 if after in nodes else 0
        replica.state.fetching.target = nodes[position % len(nodes)]


def heard(replica: Replica, now: float) -> None:
    state = replica.state
    if isinstance(state, Follower):
        election.heard_from_leader(replica, now, state)
    elif isinstance(state, Observer):
        replica.leader_gone = False
        state.last_contact = now
        state.doubt_at = now + replica.timing.fetch_timeout_s


def _take_in(replica: Replica, fetching: Fetching, message: FetchResponse) -> bool:
    """Truncate or append as the leader says; False when what it says does not fit this log."""
    if message.snapshot is not None:
        return snapshots.begin(replica, fetching, message.snapshot)
    if message.diverging is not None:
        return _truncate(replica, message.diverging)
    if not _fits(replica, message.batches):
        return False
    replica.append(message.batches)
    replica.advance_high_watermark(min(message.high_watermark, replica.log.end_offset))
    return True


def _truncate(replica: Replica, diverging: EpochEnd) -> bool:
    """Cut to the end of the greatest epoch that both logs have, as far as this step knows it."""
    own = replica.log.end_offset_for(diverging.epoch)
    offset = own.end_offset
    if own.epoch == diverging.epoch:
        offset = min(offset, diverging.end_offset)
    if offset >= replica.log.end_offset:
        _log.error("the leader sees a divergence at %s where there is none", diverging)
        return False
    _log.warning("truncating from %d to %d: %s", replica.log.end_offset, offset, diverging)
    replica.truncate_to(offset)
    return True


def _fits(replica: Replica, batches: tuple[Batch, ...]) -> bool:
    offset, epoch = replica.log.end_offset, replica.log.last_epoch
    for batch in batches:
        if batch.base_offset != offset or not epoch <= batch.epoch <= replica.epoch:
            _log.error(
                "fetched a batch (offset %d, epoch %d) that does not follow offset %d, epoch %d",
                batch.base_offset,
                batch.epoch,
                offset,
                epoch,
            )
            return False
        offset, epoch = batch.end_offset, batch.epoch
    return True


def tick(replica: Replica, now: float) -> None:
    """Do what the clock asks of the log's transport."""
    state = replica.state
    if isinstance(state, Leader):
        expire_parked(replica, now, state)
        forget_observers(now, state)
    elif isinstance(state, Observer) and now >= state.doubt_at:
        replica.leader_gone = replica.leader_id is not None
        state.doubt_at = now + replica.timing.fetch_timeout_s
