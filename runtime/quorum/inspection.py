"""The voters by a metadata directory whose node is down or has no leader to ask."""

from __future__ import annotations

from raft.quorum import VoterSet
from runtime.quorum.control import voters_in
from runtime.quorum.snapshots import SnapshotStore
from stele.wire.batch import BatchError, batches, check_crc
from storage.directory_names import METADATA_PARTITION, METADATA_TOPIC
from world.disk import Disk

_LOG_SUFFIX = ".log"


def voters_on_disk(disk: Disk, log_directory: str, cluster_id: str) -> VoterSet | None:
    """The newest voters in the directory's snapshots and log; None: nothing there names any.

    Reads only, so that the node may run. What is torn at the end of the log is left out.
    Raises SteleError (a snapshot or a record is damaged), OSError.
    """
    directory = f"{log_directory}/{METADATA_TOPIC}-{METADATA_PARTITION}"
    if not disk.exists(directory):
        return None
    snapshots = SnapshotStore(disk, directory, cluster_id, read_only=True)
    if snapshots.newest is not None:
        found = snapshots.load(snapshots.newest).voters
    else:
        found = snapshots.first_voters()
    for name in disk.list(directory):
        if name.endswith(_LOG_SUFFIX):
            found = _last_in(disk.read_file(f"{directory}/{name}")) or found
    return found


def _last_in(segment: bytes) -> VoterSet | None:
    found = None
    try:
        for position, header in batches(segment):
            if not check_crc(segment, position, header):
                break
            if header.is_control:
                found = voters_in(segment, position) or found
    except BatchError:
        pass  # unwritten bytes behind the last batch
    return found
