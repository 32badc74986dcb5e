"""Fetching a snapshot, when the leader's log begins behind the end of this one (KIP-630).

The core asks for one piece after the other and hands them on; the driver stores them, checks the
whole, and says so. Only then, and only if the replica still follows, does the snapshot take the
place of the log: a leader never loads one.
"""

from __future__ import annotations

import logging

from raft import fetch_source, replication
from raft.messages import FetchSnapshotRequest, FetchSnapshotResponse, SnapshotId
from raft.quorum import NO_DIRECTORY, ReplicaKey, VoterSet
from raft.ready import SnapshotPiece
from raft.replica import RaftReplica
from raft.roles import Download, Fetching
from stele.errors import ErrorCode

_log = logging.getLogger(__name__)

# -------------------------------------------------------------------------- the leader's side


def on_request(
    replica: RaftReplica, now: float, request_id: int, message: FetchSnapshotRequest
) -> None:
    """The driver adds the bytes to an answer without error, or says that there are none."""
    state, error = replica.leading, ErrorCode.NONE
    if message.epoch < replica.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif message.epoch > replica.epoch:
        error = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif state is None:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif message.replica_id == replica.local.id or message.position < 0:
        error = ErrorCode.INVALID_REQUEST
    else:
        key = ReplicaKey(message.replica_id, message.replica_directory_id or NO_DIRECTORY)
        replication.progress_of(replica, now, state, key).contact(now)
    replica.reply(
        request_id,
        FetchSnapshotResponse(
            error,
            replica.known_leader,
            replica.epoch,
            message.snapshot,
            position=message.position,
            max_bytes=message.max_bytes,
        ),
    )


# ------------------------------------------------------------------------- the fetcher's side


def begin(replica: RaftReplica, fetching: Fetching, snapshot: SnapshotId) -> bool:
    """The leader names a snapshot to load; False if this replica cannot need it."""
    if snapshot.end_offset <= max(replica.high_watermark, replica.log.start_offset):
        _log.error("the leader offers %s for a log that has it: %s", snapshot, replica.log)
        return False
    _log.info("the log ends at %d: fetching %s", replica.log.end_offset, snapshot)
    fetching.download = Download(snapshot)
    return True


def request_next(replica: RaftReplica, fetching: Fetching, download: Download) -> None:
    fetching.request_id = replica.call(
        fetching.target,
        FetchSnapshotRequest(
            replica_id=replica.local.id,
            replica_directory_id=replica.local.directory_id,
            epoch=replica.epoch,
            snapshot=download.snapshot,
            position=download.position,
            max_bytes=replica.timing.fetch_max_bytes,
        ),
    )


def on_response(
    replica: RaftReplica, now: float, sender: int, message: FetchSnapshotResponse
) -> None:
    news = replica.observe(now, message.epoch, message.leader_id)
    fetching = replica.fetching
    if fetching is None or (news and replica.leader_id is not None):
        return  # in another role, or already on the way to the leader
    download = fetching.download
    if message.error is not ErrorCode.NONE or download is None:
        fetching.download = None
        fetch_source.refused(replica, now, fetching, sender, message)
    elif message.epoch != replica.epoch or not _fits(download, message):
        _log.error("node %d answers with a piece that does not fit %s", sender, download)
        fetching.download = None
        fetching.failed(now, replica.timing)
    else:
        fetching.succeeded()
        fetch_source.heard(replica, now)
        _take_in(replica, download, message)


def _fits(download: Download, message: FetchSnapshotResponse) -> bool:
    end = message.position + len(message.data)
    same = message.snapshot == download.snapshot and message.position == download.position
    return same and download.position < end <= message.size


def _take_in(replica: RaftReplica, download: Download, message: FetchSnapshotResponse) -> None:
    download.position += len(message.data)
    download.complete = download.position == message.size
    replica.take_piece(
        SnapshotPiece(download.snapshot, message.position, message.data, download.complete)
    )


def checked(
    replica: RaftReplica, now: float, snapshot: SnapshotId, *, sound: bool, voters: VoterSet | None
) -> None:
    """The driver has the whole snapshot on disk, and it is sound or not."""
    fetching = replica.fetching
    if fetching is None or (download := fetching.download) is None:
        return  # the role in which it was fetched is over: it is not loaded
    if download.snapshot != snapshot or not download.complete:
        return
    fetching.download = None
    if sound:
        replica.install(snapshot, voters)
    else:
        _log.error("%s is not sound: fetching it again", snapshot)
        fetching.failed(now, replica.timing)
