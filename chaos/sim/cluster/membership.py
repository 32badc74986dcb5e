"""The voters of a simulated quorum, and their changes as an administrator makes them."""

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
    """The directory id of the node's present metadata disk; None while it is not formatted."""
    disk = node.machine.disk
    path = f"{node.metadata_directory}/{META_PROPERTIES_FILE}"
    if disk.find(path) is None:
        return None
    lines = bytes(disk.file(path).data).decode().splitlines()
    (text,) = (line.partition("=")[2] for line in lines if line.startswith("directory.id="))
    return decode_uuid(text)


def newest_voters(controllers: Iterable[SimNode]) -> VoterSet:
    """The newest voters that any running controller knows. They may not be committed."""
    cores = [core for node in controllers if (core := node.core) is not None]
    newest = max(cores, key=lambda core: (core.log.last_epoch, core.voters_offset), default=None)
    return VoterSet([]) if newest is None else newest.voters


def settled_voters(established: SimNode) -> VoterSet:
    """The committed voters if the quorum knows the disk of each, else an empty set."""
    core = established.core
    if (
        core is None
        or core.change_pending
        or any(voter.key.directory_id == NO_DIRECTORY for voter in core.voters.voters)
    ):
        return VoterSet([])
    return core.voters


def is_followed(controllers: Iterable[SimNode], leading: SimNode) -> bool:
    """Whether a majority of the leader's voters is in its epoch: then no other leader was elected
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
    """Remove a voter by the directory id in the newest voters: that disk may be lost by now."""
    voter = newest_voters(controllers.values()).get(node_id)
    known = None if voter is None else voter.key.directory_id
    directory = known or directory_id(controllers[node_id]) or b""
    request = pb.RemoveVoterRequest(voter_id=node_id, voter_directory_id=directory)
    await _change(client, "RemoveVoter", request)


class Removals:
    """Every voter, by node and disk, whose removal was ever requested.

    A request may take effect late, even after it was answered and the voter was added again: a copy
    may be under way, or wait in a paused process.
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
        """The voters whose removal nobody has requested."""
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
