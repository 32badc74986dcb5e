"""Voters of a simulated quorum: changed as an administrator changes them, and disks replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.sim.world.wire import Said, Stage, Wire
from raft.core import RaftCore
from raft.quorum import NO_DIRECTORY, ReplicaKey, VoterSet
from stele.errors import ApiError, ErrorCode
from stele.ids import decode_uuid
from stele.wire.v1 import raft_pb2 as pb
from storage.checkpoints import META_PROPERTIES_FILE

if TYPE_CHECKING:
    from chaos.sim.cluster.cluster import SimCluster, SimNode

CATCH_UP_S = 10.0


def directory_id(cluster: SimCluster, node: SimNode) -> bytes | None:
    """Of the disk with the node's metadata as it is now; None while it is not formatted."""
    disk = cluster.simulation.machine(node.host).disk
    path = f"{node.metadata_directory}/{META_PROPERTIES_FILE}"
    if disk.find(path) is None:
        return None
    lines = bytes(disk.file(path).data).decode().splitlines()
    (text,) = (line.partition("=")[2] for line in lines if line.startswith("directory.id="))
    return decode_uuid(text)


def newest_voters(cluster: SimCluster) -> VoterSet:
    """The newest voters that any controller that runs knows of; they may not be committed."""
    cores = [core for node in cluster.controllers.values() if (core := _core(node)) is not None]
    newest = max(cores, key=lambda core: (core.log.last_epoch, core.voters_offset), default=None)
    return VoterSet([]) if newest is None else newest.voters


def settled_voters(cluster: SimCluster) -> VoterSet:
    """The committed voters, of which each disk is known; none while that cannot be told."""
    leading = cluster.established_controller
    core = None if leading is None else _core(leading)
    if (
        core is None
        or core.change_pending
        or any(voter.key.directory_id == NO_DIRECTORY for voter in core.voters.voters)
    ):
        return VoterSet([])
    return core.voters


def is_followed(cluster: SimCluster, leading: SimNode) -> bool:
    """Whether a majority of the voters it goes by is in its epoch, and so has had no other leader
    since."""
    leader = _core(leading)
    cores = [core for node in cluster.controllers.values() if (core := _core(node)) is not None]
    return leader is not None and leader.voters.majority <= sum(
        core.epoch == leader.epoch and core._replica.local in leader.voters for core in cores
    )


async def add(cluster: SimCluster, node_id: int, endpoint: str) -> None:
    node = cluster.controllers[node_id]
    request = pb.AddVoterRequest(
        voter_id=node_id,
        voter_directory_id=directory_id(cluster, node) or b"",
        endpoint=endpoint,
        timeout_ms=int(CATCH_UP_S * 1000),
    )
    await _change(cluster, "AddVoter", request)


async def remove(cluster: SimCluster, node_id: int) -> None:
    """As the newest voters know it: with the directory id of a disk that may be lost."""
    voter = newest_voters(cluster).get(node_id)
    known = None if voter is None else voter.key.directory_id
    directory = known or directory_id(cluster, cluster.controllers[node_id]) or b""
    await _change(
        cluster,
        "RemoveVoter",
        pb.RemoveVoterRequest(voter_id=node_id, voter_directory_id=directory),
    )


class Removals:
    """Whom anybody ever asked to be removed from the voters, node and disk.

    That may still take effect, even if it was answered and the voter added again: a copy of the
    request may be under way, or wait in a process that stands still.
    """

    def __init__(self, wire: Wire) -> None:
        self._asked: set[ReplicaKey] = set()
        wire.listen(self._hear, "/RemoveVoter")

    def _hear(self, stage: Stage, said: Said) -> None:
        if stage is Stage.SENT:
            request = pb.RemoveVoterRequest.FromString(said.request)
            directory = request.voter_directory_id or NO_DIRECTORY
            self._asked.add(ReplicaKey(request.voter_id, directory))

    def spared(self, voters: VoterSet) -> VoterSet:
        """Those of whom nobody asked for it."""
        return VoterSet(
            voter
            for voter in voters.voters
            if not any(voter.key.matches(key) for key in self._asked)
        )


async def _change(
    cluster: SimCluster, method: str, request: pb.AddVoterRequest | pb.RemoveVoterRequest
) -> None:
    data = await cluster.client._administrate(method, request.SerializeToString())
    answer = pb.VoterChangeResponse.FromString(data)
    if answer.error != ErrorCode.NONE:
        raise ApiError(ErrorCode(answer.error), answer.message)


def _core(node: SimNode) -> RaftCore | None:
    if not node.alive or node.node is None or node.node.quorum is None:
        return None
    return node.node.quorum._core
