"""Who was elected, by the votes that were given."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import whole_batches
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report
from chaos.sim.world.wire import Said, Stage
from runtime.quorum.messages import VOTE
from stele.wire.batch import decode
from stele.wire.kafka.primitives import read_uvarint
from stele.wire.v1.raft_pb2 import (
    VoteRequest,
    VoteResponse,
)

# Of Kafka's LeaderChangeMessage: behind version and leader, and a voter with its tagged fields.
_LISTS_AT = 2 + 4
_VOTER_BYTES = 4 + 1


class LeadersAreElected(Law):
    """Who leads an epoch was elected by a majority of the newest voters that its log then held
    (Ongaro's dissertation, §4.1), as the first record of the epoch says; and those have granted it
    their votes. Its own is one if it is among them."""

    name = "leaders are elected by their newest voters"
    cadence = Cadence.QUORUM
    hears = (VOTE,)

    def __init__(self) -> None:
        self._granted: dict[tuple[int, int], set[int]] = {}  # by candidate and epoch
        self._judged: set[tuple[int, int]] = set()

    def hear(self, stage: Stage, said: Said) -> None:
        if stage is not Stage.ANSWERED:
            return
        request, answer = VoteRequest.FromString(said.request), VoteResponse.FromString(said.answer)
        if answer.granted and not answer.error and not request.pre_vote:
            key = request.candidate_id, request.epoch
            self._granted.setdefault(key, set()).add(request.voter_id)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.controllers.values():
            core = node.core
            start = None if core is None else core.epoch_start_offset
            if core is None or start is None or (node.id, core.epoch) in self._judged:
                continue
            counted = _granting(node, start)
            if counted is None:
                continue  # the record is still on its way to the disk
            self._judged.add((node.id, core.epoch))
            self.looked += 1
            voters, leads = core.voters_at(start), f"{node.incarnation} leads epoch {core.epoch}"
            if len(counted.intersection(voters.ids)) < voters.majority:
                report(f"{leads} with the votes of {sorted(counted)}, and {voters} vote")
            granted = {node.id, *self._granted.get((node.id, core.epoch), ())}
            if not counted <= granted:
                report(f"{leads} with the votes of {sorted(counted)}; it got {sorted(granted)}")


def _granting(node: SimNode, start: int) -> set[int] | None:
    """Who elected a leader, by the LeaderChangeMessage at the beginning of its epoch; None if that
    is not in the log."""
    for _, inode in node.machine.disk.files(node.metadata_log, ".log"):
        for position, header in whole_batches(inode.data):
            if header.base_offset == start:
                return _granting_voters(next(iter(decode(inode.data, position))).value or b"")
    return None


def _granting_voters(message: bytes) -> set[int]:
    """Version 0: the second of two lists of voters, each an id."""
    position, voters = _LISTS_AT, set[int]()
    for _ in range(2):
        size, position = read_uvarint(message, position)
        end = position + (size - 1) * _VOTER_BYTES
        starts = range(position, end, _VOTER_BYTES)
        voters = {int.from_bytes(message[at : at + 4], "big") for at in starts}
        position = end
    return voters
