"""Compares elected leaders with the votes that were given."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import whole_batches
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from runtime.quorum.messages import VOTE
from stele.wire.batch import decode
from stele.wire.kafka.primitives import read_uvarint
from stele.wire.v1.raft_pb2 import (
    VoteRequest,
    VoteResponse,
)

# Kafka's LeaderChangeMessage: the lists follow version and leader; a voter is an id and its tagged
# fields.
_LISTS_AT = 2 + 4
_VOTER_BYTES = 4 + 1


class LeadersAreElected(Law):
    """A leader was elected by a majority of the newest voters in its log (Ongaro's dissertation,
    §4.1). The first record of its epoch lists who elected it, and these have granted their votes.
    The leader's own vote counts if the leader is one of the voters."""

    name = "leaders are elected by their newest voters"
    cadence = Cadence.QUORUM
    hears = (VOTE,)

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._granted: dict[tuple[int, int], set[int]] = {}  # by candidate and epoch
        self._judged: set[tuple[int, int]] = set()

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def hear(self, stage: Stage, said: Said) -> None:
        if stage is not Stage.ANSWERED:
            return
        request, answer = VoteRequest.FromString(said.request), VoteResponse.FromString(said.answer)
        if answer.granted and not answer.error and not request.pre_vote:
            key = request.candidate_id, request.epoch
            self._granted.setdefault(key, set()).add(request.voter_id)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for leader in self._scene.quorum.replicas:
            node, epoch, start = leader.node, leader.epoch, leader.epoch_start_offset
            if start is None or (node.id, epoch) in self._judged:
                continue
            counted = _granting(node, start)
            if counted is None:
                continue  # the record is still on its way to the disk
            self._judged.add((node.id, epoch))
            self.looked += 1
            voters, leads = leader.core.voters_at(start), f"{leader.process} leads epoch {epoch}"
            if len(counted.intersection(voters.ids)) < voters.majority:
                report(f"{leads} with the votes of {sorted(counted)}, and {voters} vote")
            granted = {node.id, *self._granted.get((node.id, epoch), ())}
            if not counted <= granted:
                report(f"{leads} with the votes of {sorted(counted)}; it got {sorted(granted)}")


def _granting(node: SimNode, start: int) -> set[int] | None:
    """The voters that elected a leader, by the LeaderChangeMessage at the beginning of its epoch.
    None if the log on disk does not have it."""
    for _, inode in node.machine.disk.files(node.metadata_log, ".log"):
        for position, header in whole_batches(inode.data):
            if header.base_offset == start:
                return _granting_voters(next(iter(decode(inode.data, position))).value or b"")
    return None


def _granting_voters(message: bytes) -> set[int]:
    """The voters in a message of version 0: the second of its two lists."""
    position, voters = _LISTS_AT, set[int]()
    for _ in range(2):
        size, position = read_uvarint(message, position)
        end = position + (size - 1) * _VOTER_BYTES
        starts = range(position, end, _VOTER_BYTES)
        voters = {int.from_bytes(message[at : at + 4], "big") for at in starts}
        position = end
    return voters
