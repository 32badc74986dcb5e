"""Laws of the quorum's majorities, against what was said: who was elected by whom, who counted
whose acknowledgement, and who asked for a change of the voters.

A replica that counts wrongly may get away with it for long. Here it does not: whatever counts has
been said by somebody, and in a simulation all of it can be heard.
"""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import whole_batches
from chaos.sim.laws.committed import Report, deciding
from chaos.sim.laws.wire import VOTE
from chaos.sim.world.wire import Said, Stage
from raft.core import RaftCore
from raft.quorum import NO_DIRECTORY, ReplicaKey, Voter, VoterSet
from runtime.quorum.messages import FETCH
from stele.wire.batch import decode
from stele.wire.kafka.primitives import read_uvarint
from stele.wire.v1.raft_pb2 import (
    AddVoterRequest,
    QuorumFetchRequest,
    RemoveVoterRequest,
    VoteRequest,
    VoteResponse,
)

_ADD_VOTER, _REMOVE_VOTER = "/AddVoter", "/RemoveVoter"
# Of Kafka's LeaderChangeMessage: behind version and leader, and a voter with its tagged fields.
_LISTS_AT = 2 + 4
_VOTER_BYTES = 4 + 1


class LeadersAreElected:
    """Who leads an epoch was elected by a majority of the newest voters that its log then held
    (Ongaro's dissertation, §4.1), as the first record of the epoch says; and those have granted it
    their votes. Its own is one if it is among them."""

    name = "leaders are elected by their newest voters"

    def __init__(self, cluster: SimCluster) -> None:
        self._granted: dict[tuple[int, int], set[int]] = {}  # by candidate and epoch
        self._judged: set[tuple[int, int]] = set()
        cluster.simulation.fabric.wire.listen(self._hear, VOTE)

    def _hear(self, stage: Stage, said: Said) -> None:
        if stage is not Stage.ANSWERED:
            return
        request, answer = VoteRequest.FromString(said.request), VoteResponse.FromString(said.answer)
        if answer.granted and not answer.error and not request.pre_vote:
            key = request.candidate_id, request.epoch
            self._granted.setdefault(key, set()).add(request.voter_id)

    def check(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.controllers.values():
            core = node.core
            start = None if core is None else core.epoch_start_offset
            if core is None or start is None or (node.id, core.epoch) in self._judged:
                continue
            counted = _granting(cluster, node, start)
            if counted is None:
                continue  # the record is still on its way to the disk
            self._judged.add((node.id, core.epoch))
            voters, leads = core.voters_at(start), f"{node.incarnation} leads epoch {core.epoch}"
            if len(counted.intersection(voters.ids)) < voters.majority:
                report(f"{leads} with the votes of {sorted(counted)}, and {voters} vote")
            granted = {node.id, *self._granted.get((node.id, core.epoch), ())}
            if not counted <= granted:
                report(f"{leads} with the votes of {sorted(counted)}; it got {sorted(granted)}")


def _granting(cluster: SimCluster, node: SimNode, start: int) -> set[int] | None:
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


class CommitsAreCounted:
    """A leader commits what it has on disk itself and what voters have told it that they have, in
    its epoch and with the disk by which the quorum knows them: that of a node with another disk is
    none, for it may have forgotten what the first one promised. And what earlier leaders have left
    it commits only together with a record of its own epoch (Raft, §5.4.2)."""

    name = "commits are counted"

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        # As far as each replica has said in an epoch that it has the log on disk.
        self._told: dict[int, dict[ReplicaKey, int]] = {}
        # High watermarks of candidates, which cannot rise, by node and epoch.
        self._stood_with: dict[tuple[int, int], int] = {}
        self._judged: dict[tuple[int, int], int] = {}  # high watermarks by leader and epoch
        cluster.simulation.fabric.wire.listen(self._hear, VOTE, FETCH)

    def _hear(self, stage: Stage, said: Said) -> None:
        if said.method == VOTE and stage is Stage.SENT:
            request = VoteRequest.FromString(said.request)
            core = self._cluster.controllers[request.candidate_id].core
            if core is not None and not request.pre_vote:
                key = request.candidate_id, request.epoch
                self._stood_with.setdefault(key, core.high_watermark)
        elif said.method == FETCH and stage is Stage.ARRIVED:
            self._take(QuorumFetchRequest.FromString(said.request))
        elif said.method == FETCH and stage is Stage.ANSWERED:  # it may tell of a commit
            self._look_at(said.target)

    def _take(self, fetch: QuorumFetchRequest) -> None:
        if fetch.replica_id in self._cluster.controllers:
            told = self._told.setdefault(fetch.epoch, {})
            key = ReplicaKey(fetch.replica_id, fetch.replica_directory_id or NO_DIRECTORY)
            told[key] = max(told.get(key, -1), fetch.fetch_offset)

    def _look_at(self, host: str) -> None:
        node = next((n for n in self._cluster.controllers.values() if n.host == host), None)
        core = None if node is None else node.core
        if node is None or core is None:
            return
        key, high_watermark = (node.id, core.epoch), core.high_watermark
        if self._judged.get(key) == high_watermark:
            return
        start = core.epoch_start_offset
        if start is None:
            return
        self._judged[key] = high_watermark
        committed = f"{node.incarnation} committed up to {high_watermark} in epoch {core.epoch}"
        stood_with = self._stood_with.get(key, high_watermark)
        if max(stood_with, 0) < high_watermark <= start:
            self._report(f"{committed}, which begins at {start}; it stood with {stood_with}")
        if high_watermark > start and not any(self._is_held(core, each) for each in deciding(core)):
            told = self._told.get(core.epoch, {})
            heard = ", ".join(f"{end} by {Voter(key)}" for key, end in told.items())
            self._report(
                f"{committed}; it has {core.log.durable_end_offset} on disk, and was told {heard}; "
                f"{core.voters} vote"
            )

    def _is_held(self, core: RaftCore, voters: VoterSet) -> bool:
        return sum(self._has(core, voter) for voter in voters.voters) >= voters.majority

    def _has(self, core: RaftCore, voter: Voter) -> bool:
        if voter.id == core.local.id:
            return core.log.durable_end_offset >= core.high_watermark
        return any(
            end >= core.high_watermark and voter.key.matches(key)
            for key, end in self._told.get(core.epoch, {}).items()
        )


class VotersChangeAsAsked:
    """Nobody becomes a voter, and no voter leaves, but who was named to somebody: node and disk."""

    name = "voters change as asked"

    def __init__(self, cluster: SimCluster) -> None:
        self._added: set[ReplicaKey] = set()
        self._removed: set[ReplicaKey] = set()
        # The newest two sets that each controller had at the last look.
        self._seen: dict[int, tuple[VoterSet, VoterSet]] = {}
        # Of a controller by its own service or by that for administrators, or of a broker.
        cluster.simulation.fabric.wire.listen(self._hear, _ADD_VOTER, _REMOVE_VOTER)

    def _hear(self, stage: Stage, said: Said) -> None:
        if stage is not Stage.ARRIVED:
            return
        request: AddVoterRequest | RemoveVoterRequest
        if said.method.endswith(_ADD_VOTER):
            request, asked = AddVoterRequest.FromString(said.request), self._added
        else:
            request, asked = RemoveVoterRequest.FromString(said.request), self._removed
        asked.add(ReplicaKey(request.voter_id, request.voter_directory_id or NO_DIRECTORY))

    def check(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.controllers.values():
            core = node.core
            if core is None:
                continue
            history = core.voter_history
            before, after = history.previous, history.latest
            if before is after or (before, after) == self._seen.get(node.id):
                continue
            self._seen[node.id] = before, after
            gone = [voter.key for voter in before.voters if voter.key not in after]
            new = [voter.key for voter in after.voters if voter.key not in before]
            wrong = [key for key in gone if not _is_named(key, self._removed)]
            wrong += [key for key in new if not _is_named(key, self._added)]
            if wrong:
                report(f"{node.incarnation} has {after} after {before}; nobody asked for {wrong}")


def _is_named(key: ReplicaKey, asked: set[ReplicaKey]) -> bool:
    return any(each.matches(key) for each in asked)
