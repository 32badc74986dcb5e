"""The ``quorum-state`` file: epoch, leader and vote of a replica, in Kafka's JSON."""

from __future__ import annotations

import json
from typing import Any, Final

from raft.quorum import NO_DIRECTORY
from raft.ready import HardState
from stele.errors import SteleError
from stele.ids import decode_uuid, encode_uuid
from world.disk import Disk

FILE_NAME: Final = "quorum-state"
_VERSION: Final = 1
_NONE: Final = -1


class QuorumStateError(SteleError):
    """The file cannot be used; the message is one line and says what to do."""


def encode(state: HardState, cluster_id: str) -> bytes:
    fields: dict[str, Any] = {
        "clusterId": cluster_id,
        "leaderId": _NONE if state.leader_id is None else state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": _NONE if state.voted_id is None else state.voted_id,
        "votedDirectoryId": encode_uuid(state.voted_directory_id or NO_DIRECTORY),
        "data_version": _VERSION,
    }
    return json.dumps(fields).encode()


def read(disk: Disk, path: str, cluster_id: str) -> HardState | None:
    """None if there is no file. QuorumStateError if it is malformed or of another cluster."""
    if not disk.exists(path):
        return None
    try:
        fields = json.loads(disk.read_file(path))
        version, owner = fields["data_version"], fields["clusterId"]
        leader_id, voted_id = int(fields["leaderId"]), int(fields["votedId"])
        directory_id = decode_uuid(fields["votedDirectoryId"])
        epoch = int(fields["leaderEpoch"])
        if version != _VERSION or epoch < 0:
            raise ValueError(f"version {version}, epoch {epoch}")
    except (ValueError, KeyError, TypeError) as error:
        raise QuorumStateError(
            f"{path} is malformed ({error}): this voter no longer knows how it voted; empty its "
            "metadata log directory, format it again, and have the voter removed and added"
        ) from None
    if owner != cluster_id:
        raise QuorumStateError(
            f"{path} is of cluster {owner}, this node is of cluster {cluster_id}: use another "
            "log directory, or wipe this one"
        )
    voted = voted_id != _NONE
    return HardState(
        epoch,
        None if leader_id == _NONE else leader_id,
        voted_id if voted else None,
        directory_id if voted else None,
    )
