"""Laws about what is said: votes, ISR proposals and acknowledgements, at the moment they leave.

They see what goes wrong before it has done any harm, and so in many more schedules.
"""

from __future__ import annotations

import json

from broker.partition.ids import PartitionId
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.membership import directory_id
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import newest_image, replica_of
from chaos.sim.laws.committed import CommittedMetadata, Report
from chaos.sim.world.wire import Said, Stage
from raft.core import RaftCore
from raft.quorum import NO_DIRECTORY
from runtime.quorum.state import FILE_NAME as QUORUM_STATE_FILE
from stele.errors import ErrorCode
from stele.ids import encode_uuid
from stele.wire.v1.controller_pb2 import AlterPartitionRequest, AlterPartitionResponse
from stele.wire.v1.raft_pb2 import VoteRequest, VoteResponse

VOTE = "/stele.v1.Raft/Vote"
ALTER_PARTITION = "/stele.v1.Controller/AlterPartition"
FETCH_METADATA = "/stele.v1.Raft/Fetch"
_ARRIVALS_KEPT = 200


class VotesAreKept:
    """A vote is on the voter's disk before it is told; it is the only one of its epoch, also across
    a crash; it goes to nobody whose log is worse than the voter's; and where the candidate says
    which disk is the voter's, that one gives it: an emptied disk has forgotten its promises."""

    name = "votes are kept"

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        # Candidate by (voter, its disk, epoch): a node with an emptied disk is another voter.
        self._told: dict[tuple[int, bytes, int], int] = {}
        # The voter's log, (last epoch, end offset), when a request came to it.
        self._logs: dict[Said, tuple[int, int]] = {}
        cluster.simulation.fabric.wire.listen(self._hear, VOTE)

    def _hear(self, stage: Stage, said: Said) -> None:
        request = VoteRequest.FromString(said.request)
        if request.pre_vote:
            return  # promises nothing
        if stage is Stage.SENT:
            # Asking for votes tells that the candidate has its own.
            self._vote_told(request.candidate_id, request)
        elif stage is Stage.ARRIVED:
            self._remember_log(said, request)
        elif (answer := VoteResponse.FromString(said.answer)).granted and not answer.error:
            self._vote_told(request.voter_id, request)
            self._check_disk(request)
            self._check_log(said, request)

    def _vote_told(self, voter: int, request: VoteRequest) -> None:
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
        """(epoch, whom it voted for or -1) as a power loss would leave it; (-1, -1): nothing."""
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
        if core is not None and not _has_voted(core, request):  # else it will repeat itself
            log = core.log.last_epoch, core.log.end_offset
        if log is not None:
            self._logs[said._replace(answer=b"")] = log
            while len(self._logs) > _ARRIVALS_KEPT:
                del self._logs[next(iter(self._logs))]

    def _check_log(self, said: Said, request: VoteRequest) -> None:
        """The decision was between arrival and answer: at one of them the vote was right."""
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


class IsrProposalsAreFresh:
    """An ISR is taken from the leader of the present epoch only, on the present partition epoch,
    with members under their present registrations; and whoever is in it has everything committed.

    ``highest`` are the high watermarks ever seen, by partition.
    """

    name = "ISR proposals are fresh"

    def __init__(
        self,
        cluster: SimCluster,
        metadata: CommittedMetadata,
        report: Report,
        highest: dict[PartitionId, int],
    ) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._report = report
        self._highest = highest
        # The epochs of the brokers' registrations when a request came.
        self._registered: dict[Said, dict[int, int]] = {}
        cluster.simulation.fabric.wire.listen(self._hear, ALTER_PARTITION)

    def _hear(self, stage: Stage, said: Said) -> None:
        request = AlterPartitionRequest.FromString(said.request)
        if stage is Stage.SENT:
            for proposal in request.partitions:
                self._check_proposal(request.broker_id, proposal)
        elif stage is Stage.ARRIVED:
            self._registered[said] = self._registrations(said.target)
            while len(self._registered) > _ARRIVALS_KEPT:
                del self._registered[next(iter(self._registered))]
        else:
            self._check_answers(said, request)

    def _check_proposal(self, leader: int, proposal: AlterPartitionRequest.Partition) -> None:
        """If it counts, its members have what is committed by now: those it adds, too.

        A member is a broker in one registration (KIP-903). What a later process of it has on disk
        says nothing of that: a leader that repeats itself goes on naming the earlier one.
        """
        image = self._metadata.newest
        state = None if image is None else image.partition(proposal.topic_id, proposal.partition)
        if (
            state is None
            or state.unclean_elections
            or (state.leader, state.leader_epoch) != (leader, proposal.leader_epoch)
            or state.partition_epoch != proposal.partition_epoch
        ):
            return
        partition = PartitionId(proposal.topic_id, proposal.partition)
        committed = self._highest.get(partition, 0)
        for member in proposal.isr:
            node = self._cluster.brokers[member.broker_id]
            replica = replica_of(node, partition)
            if replica is None or _registered_as(node) != member.broker_epoch:
                continue
            if replica.log.durable_offset < committed:
                self._report(
                    f"{replica!r}: broker {member.broker_id} is proposed for the ISR, has "
                    f"{replica.log.durable_offset} on disk, and {committed} is committed"
                )

    def _check_answers(self, said: Said, request: AlterPartitionRequest) -> None:
        response = AlterPartitionResponse.FromString(said.answer)
        proposals = {(each.topic_id, each.partition): each for each in request.partitions}
        for answer in response.partitions:
            proposal = proposals.get((answer.topic_id, answer.partition))
            if proposal is None or answer.error != ErrorCode.NONE:
                continue
            what = f"partition {answer.partition} of {answer.topic_id.hex()[:8]}"
            if answer.partition_epoch > proposal.partition_epoch + 1:
                self._report(
                    f"{what}: an ISR that was proposed on partition epoch "
                    f"{proposal.partition_epoch} was taken as {answer.partition_epoch}"
                )
            self._check_registrations(said, proposal, what)

    def _check_registrations(
        self, said: Said, proposal: AlterPartitionRequest.Partition, what: str
    ) -> None:
        before, now = (
            self._registered.get(said._replace(answer=b"")),
            self._registrations(said.target),
        )
        if before is None:
            return
        for member in proposal.isr:
            known = before.get(member.broker_id), now.get(member.broker_id)
            if member.broker_epoch not in known:
                self._report(
                    f"{what}: broker {member.broker_id} was taken into the ISR with epoch "
                    f"{member.broker_epoch}; it was registered with {known}"
                )

    def _registrations(self, machine: str) -> dict[int, int]:
        for node in self._cluster.controllers.values():
            if node.host == machine and node.node is not None and node.node.controller is not None:
                brokers = node.node.controller.image.brokers
                return {each.broker_id: each.broker_epoch for each in brokers.values()}
        return {}


class FencedBrokersAcknowledgeNothing:
    """Who has been fenced for longer than a session lasts has no lease, and acknowledges no
    acks=all write that was sent to it since."""

    name = "fenced brokers acknowledge nothing"

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._since: dict[int, float] = {}  # by broker: when it was first seen fenced
        self._offset = -1
        session_ms = next(iter(cluster.brokers.values())).config.broker_session_timeout_ms
        self._session_s = session_ms / 1000
        self.checked = 0

    def check(self, cluster: SimCluster, report: Report) -> None:
        image = newest_image(cluster)
        if image is None or image.offset < self._offset:
            return  # controllers that have restarted do not know yet what is committed
        self._offset = image.offset
        for registration in image.brokers.values():
            if registration.fenced:
                self._since.setdefault(registration.broker_id, cluster.simulation.now)
            else:
                self._since.pop(registration.broker_id, None)

    def acknowledged(self, broker: int, waited_s: float) -> None:
        """``broker`` has acknowledged a write that was sent to it so many seconds ago."""
        self.checked += 1
        self.check(self._cluster, self._report)  # it may have been unfenced since the last look
        sent_at = self._cluster.simulation.now - waited_s
        since = self._since.get(broker)
        if since is not None and since + self._session_s < sent_at:
            self._report(
                f"broker {broker}, fenced since {since:.3f}, acknowledged a write of {sent_at:.3f}"
            )


def _registered_as(node: SimNode) -> int:
    """The broker epoch that its process goes by; -1 before it is registered, or down."""
    running = node.running
    broker = None if running is None else running.broker
    return -1 if broker is None else broker.replicas._broker_epoch
