"""Votes at the moment when a voter tells them."""

from __future__ import annotations

import json
from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.membership import directory_id
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from raft.core import RaftCore
from raft.quorum import NO_DIRECTORY
from runtime.quorum.messages import VOTE
from runtime.quorum.state import FILE_NAME as QUORUM_STATE_FILE
from stele.ids import encode_uuid
from stele.wire.v1.raft_pb2 import VoteRequest, VoteResponse

_ARRIVALS_KEPT = 200


class VotesAreKept(Law):
    """A voter has its vote on disk before it tells it. It gives one vote per epoch, also across a
    crash, and no vote to a candidate whose log is behind its own.

    If the candidate names the voter's disk, the vote comes from that disk: an emptied disk has
    forgotten its promises.
    """

    name = "votes are kept"
    cadence = Cadence.TOLD
    hears = (VOTE,)
    proof = Proof.CAMPAIGN

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        # The candidate, by (voter, its disk, epoch): a node with an emptied disk is another voter.
        self._told: dict[tuple[int, bytes, int], int] = {}
        # The voter's log, (last epoch, end offset), when a request arrived.
        self._logs: dict[Said, tuple[int, int]] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.report)

    def hear(self, stage: Stage, said: Said) -> None:
        request = VoteRequest.FromString(said.request)
        if request.pre_vote:
            return  # a pre-vote promises nothing
        if stage is Stage.SENT:
            # A candidate that asks for votes tells that it votes for itself.
            self._vote_told(request.candidate_id, request)
        elif stage is Stage.ARRIVED:
            self._remember_log(said, request)
        elif stage is Stage.ANSWERED:
            self._answered(said, request)

    def _answered(self, said: Said, request: VoteRequest) -> None:
        answer = VoteResponse.FromString(said.answer)
        if answer.granted and not answer.error:
            self._vote_told(request.voter_id, request)
            self._check_disk(request)
            self._check_log(said, request)

    def _vote_told(self, voter: int, request: VoteRequest) -> None:
        self.looked += 1
        epoch, candidate = request.epoch, request.candidate_id
        first = self._told.setdefault((voter, self._disk_of(voter), epoch), candidate)
        if first != candidate:
            self._report(
                f"voter {voter} told {first} and {candidate} that it votes for them in {epoch}"
            )
        on_disk = self._vote_on_disk(self._cluster.controllers[voter])
        if on_disk < (epoch, -1) or (on_disk[0] == epoch and on_disk[1] != candidate):
            self._report(
                f"voter {voter} told {candidate} that it votes for it in epoch {epoch}; its disk "
                f"says (epoch, vote) {on_disk}"
            )

    def _vote_on_disk(self, node: SimNode) -> tuple[int, int]:
        """(epoch, candidate or -1) as a power loss would leave it; (-1, -1) if there is no file."""
        disk = node.machine.disk
        data = disk.durable_file(f"{node.metadata_log}/{QUORUM_STATE_FILE}")
        if not data:
            return -1, -1
        fields = json.loads(data)
        return fields["leaderEpoch"], fields["votedId"]

    def _disk_of(self, voter: int) -> bytes:
        return directory_id(self._cluster.controllers[voter]) or NO_DIRECTORY

    def _check_disk(self, request: VoteRequest) -> None:
        asked, present = request.voter_directory_id, self._disk_of(request.voter_id)
        if asked not in (b"", NO_DIRECTORY, present):
            self._report(
                f"voter {request.voter_id} with the disk {encode_uuid(present)} votes for "
                f"{request.candidate_id} in epoch {request.epoch}, which has asked the voter with "
                f"the disk {encode_uuid(asked)}"
            )

    def _remember_log(self, said: Said, request: VoteRequest) -> None:
        core, log = self._cluster.controllers[request.voter_id].core, None
        if core is not None and not _has_voted(core, request):  # else it repeats an earlier vote
            log = core.log.last_epoch, core.log.end_offset
        if log is not None:
            self._logs[said._replace(answer=b"")] = log
            while len(self._logs) > _ARRIVALS_KEPT:
                del self._logs[next(iter(self._logs))]

    def _check_log(self, said: Said, request: VoteRequest) -> None:
        """The voter decided between arrival and answer, so the vote is right if the candidate's log
        was good enough at either moment."""
        theirs = request.last_epoch, request.last_offset
        then, now = self._logs.get(said._replace(answer=b"")), self._log_of(request.voter_id)
        if then is not None and now is not None and theirs < min(then, now):
            self._report(
                f"voter {request.voter_id} with the log {now} votes for {request.candidate_id} "
                f"with {theirs} in epoch {request.epoch}"
            )

    def _log_of(self, voter: int) -> tuple[int, int] | None:
        core = self._cluster.controllers[voter].core
        return None if core is None else (core.log.last_epoch, core.log.end_offset)


def _has_voted(core: RaftCore, request: VoteRequest) -> bool:
    voted = core.vote
    return core.epoch == request.epoch and voted is not None and voted.id == request.candidate_id
