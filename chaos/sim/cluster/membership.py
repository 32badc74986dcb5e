"""Voters of a simulated quorum: changed as an administrator changes them, and disks replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chaos.sim.cluster.client import SimClient
from chaos.sim.cluster.node import SimNode
from chaos.sim.world.wire import Said, Stage, Wire
from raft.quorum import NO_DIRECTORY, ReplicaKey, VoterSet
from stele.errors import ApiError, ErrorCode
from stele.ids import decode_uuid
from stele.wire.v1 import raft_pb2 as pb
from storage.checkpoints import META_PROPERTIES_FILE

CATCH_UP_S = 10.0


def directory_id(node: SimNode) -> bytes | None:
    """Of the disk with the node's metadata as it is now; None while it is not formatted."""
    disk = node.machine.disk
    path = f"{node.metadata_directory}/{META_PROPERTIES_FILE}"
    if disk.find(path) is None:
        return None
    lines = bytes(disk.file(path).data).decode().splitlines()
    (text,) = (line.partition("=")[2] for line in lines if line.startswith("directory.id="))
    return decode_uuid(text)


def newest_voters(controllers: Iterable[SimNode]) -> VoterSet:
    """The newest voters that any controller that runs knows of; they may not be committed."""
    cores = [core for node in controllers if (core := node.core) is not None]
    newest = max(cores, key=lambda core: (core.log.last_epoch, core.voters_offset), default=None)
    return VoterSet([]) if newest is None else newest.voters


def settled_voters(established: SimNode) -> VoterSet:
    """The committed voters, of which each disk is known; none while that cannot be told."""
    core = established.core
    if (
        core is None
        or core.change_pending
        or any(voter.key.directory_id == NO_DIRECTORY for voter in core.voters.voters)
    ):
        return VoterSet([])
    return core.voters


def is_followed(controllers: Iterable[SimNode], leading: SimNode) -> bool:
    """Whether a majority of the voters it goes by is in its epoch, and so has had no other leader
    since."""
    leader = leading.core
    cores = [core for node in controllers if (core := node.core) is not None]
    return leader is not None and leader.voters.majority <= sum(
        core.epoch == leader.epoch and core.local in leader.voters for core in cores
    )


async def add(client: SimClient, node: SimNode, endpoint: str) -> None:
    request = pb.AddVoterRequest(
        voter_id=node.id,
        voter_directory_id=directory_id(node) or b"",
        endpoint=endpoint,
        timeout_ms=int(CATCH_UP_S * 1000),
    )
    await _change(client, "AddVoter", request)


async def remove(client: SimClient, controllers: Mapping[int, SimNode], node_id: int) -> None:
    """As the newest voters know it: with the directory id of a disk that may be lost."""
    voter = newest_voters(controllers.values()).get(node_id)
    known = None if voter is None else voter.key.directory_id
    directory = known or directory_id(controllers[node_id]) or b""
    request = pb.RemoveVoterRequest(voter_id=node_id, voter_directory_id=directory)
    await _change(client, "RemoveVoter", request)


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
    client: SimClient, method: str, request: pb.AddVoterRequest | pb.RemoveVoterRequest
) -> None:
    data = await client.administrate(method, request.SerializeToString())
    answer = pb.VoterChangeResponse.FromString(data)
    if answer.error != ErrorCode.NONE:
        raise ApiError(ErrorCode(answer.error), answer.message)
