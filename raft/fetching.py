"""The log's way to a follower or an observer: its one fetch loop, and what the answers bring."""

from __future__ import annotations

import logging

from raft import fetch_source, snapshots
from raft.messages import Batch, EpochEnd, FetchRequest, FetchResponse
from raft.replica import RaftReplica
from raft.roles import NEVER, Fetching, Follower, Unattached
from stele.errors import ErrorCode

_log = logging.getLogger(__name__)


def fetch_at(replica: RaftReplica, fetching: Fetching) -> float:
    """When the next fetch is due: never while one is out, nor before the log is durable."""
    if fetching.request_id is not None:
        return NEVER
    if fetching.download is not None and fetching.download.complete:
        return NEVER  # the driver checks it
    if replica.log.durable_end_offset < replica.log.end_offset or not replica.promises_durable:
        return NEVER
    return fetching.retry_at


def fetch(replica: RaftReplica, now: float, fetching: Fetching) -> None:
    """Send the next fetch if it is due. It acknowledges the whole log, so that must be durable."""
    if now < fetch_at(replica, fetching):
        return
    if fetching.download is not None:
        snapshots.request_next(replica, fetching, fetching.download)
        return
    # A replica that doubts its leader asks for a sign of life, not for news.
    doubts = isinstance(replica.state, Follower) and replica.state.suspects
    max_wait_ms = 0 if doubts else replica.timing.fetch_max_wait_ms
    fetching.request_id = replica.call(fetching.target, _request(replica, max_wait_ms))


def ask_for_leader(replica: RaftReplica, state: Unattached) -> None:
    """A voter that has stood in vain asks a node that is no voter by its log, once before it stands
    again (KIP-853).

    It may have been removed together with all the voters that it knows: then none of them answers.
    Only epoch and leader of the answer count.
    """
    if state.asked or not replica.losses:
        return
    durable = replica.log.durable_end_offset >= replica.log.end_offset and replica.promises_durable
    if not durable or not (others := replica.others_to_ask):
        return
    state.asked = True
    replica.call(others[replica.losses % len(others)], _request(replica, max_wait_ms=0))


def _request(replica: RaftReplica, max_wait_ms: int) -> FetchRequest:
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


def on_response(replica: RaftReplica, now: float, sender: int, message: FetchResponse) -> None:
    news = replica.observe(now, message.epoch, message.leader_id)
    fetching, leader_id = replica.fetching, replica.leader_id
    if fetching is None or (news and leader_id is not None):
        return  # in another role, or already on the way to the leader
    if message.error is not ErrorCode.NONE:
        fetch_source.refused(replica, now, fetching, sender, message)
    elif message.epoch == replica.epoch and sender < 0 and leader_id is not None:
        fetching.redirect(leader_id)  # the leader has answered
    elif message.epoch != replica.epoch or message.leader_id != sender:
        _log.error("node %d answers a fetch in epoch %d with %s", sender, replica.epoch, message)
        fetching.failed(now, replica.timing)
    elif _take_in(replica, fetching, message):
        fetching.succeeded()
        fetch_source.heard(replica, now)
    else:
        fetching.failed(now, replica.timing)


def _take_in(replica: RaftReplica, fetching: Fetching, message: FetchResponse) -> bool:
    """Truncate or append as the leader says. False if its answer does not fit this log."""
    if message.snapshot is not None:
        return snapshots.begin(replica, fetching, message.snapshot)
    if message.diverging is not None:
        return _truncate(replica, message.diverging)
    if not _fits(replica, message.batches):
        return False
    replica.append(message.batches)
    replica.advance_high_watermark(min(message.high_watermark, replica.log.end_offset))
    return True


def _truncate(replica: RaftReplica, diverging: EpochEnd) -> bool:
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


def _fits(replica: RaftReplica, batches: tuple[Batch, ...]) -> bool:
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
