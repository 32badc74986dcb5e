"""Compares the commits of a leader of the quorum with the reports of its voters."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.majority import deciding
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from raft.core import RaftCore
from raft.quorum import NO_DIRECTORY, ReplicaKey, Voter, VoterSet
from runtime.quorum.messages import FETCH, VOTE
from stele.wire.v1.raft_pb2 import (
    QuorumFetchRequest,
    VoteRequest,
)


class CommitsAreCounted(Law):
    """A leader commits only records that a majority holds. It counts its own disk, and voters that
    have reported their log end in its epoch.

    A voter counts only with the disk by which the quorum knows it: with another disk it may have
    forgotten its promises. A leader commits records of earlier leaders only together with a record
    of its own epoch (Raft, §5.4.2).
    """

    name = "commits are counted"
    cadence = Cadence.TOLD
    hears = (VOTE, FETCH)

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        # How far each replica has said that it has the log on disk, by epoch.
        self._told: dict[int, dict[ReplicaKey, int]] = {}
        # High watermarks of candidates, by node and epoch. A candidate's cannot rise.
        self._stood_with: dict[tuple[int, int], int] = {}
        self._judged: dict[tuple[int, int], int] = {}  # high watermarks, by leader and epoch

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.report)

    def hear(self, stage: Stage, said: Said) -> None:
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
        for node in self._cluster.controllers.values():
            if node.host == host:
                break
        else:
            return
        core = node.core
        if core is None:
            return
        key, high_watermark = (node.id, core.epoch), core.high_watermark
        if self._judged.get(key) == high_watermark:
            return
        start = core.epoch_start_offset
        if start is None:
            return
        self._judged[key] = high_watermark
        self.looked += 1
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
