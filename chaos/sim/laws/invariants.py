"""What must hold at every moment of a simulated cluster, looked at from outside of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.broker import Broker
from broker.partition.ids import PartitionId
from broker.replication.replica import Replica, ReplicaState
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.committed import (
    CommittedMetadata,
    CommittedRecordsStay,
    EpochsOnlyGrow,
    Law,
    MajorityHolds,
    OneVotePerEpoch,
    SomeoneHasEverything,
)
from chaos.sim.laws.deletions import DeletedRecordsStayDeleted
from chaos.sim.laws.disks import DirectoriesFailWithTheirDevice, UnreadableReplicasAreGivenUp
from chaos.sim.laws.durability import DurableIsDurable, DurableStartsAreDurable
from chaos.sim.laws.logs import (
    FollowersKnowTheEpoch,
    LogsRememberWhatTheyHold,
    MembersHaveEverything,
)
from chaos.sim.laws.majorities import (
    CommitsAreCounted,
    LeadersAreElected,
    VotersChangeAsAsked,
)
from chaos.sim.laws.quorum import ReadsAreLinearizable, VotersChangeOneByOne
from chaos.sim.laws.replicas import LeadersGoByTheirMetadata, ReplicasFitTogether
from chaos.sim.laws.retention import CheckpointsClaimWhatIsThere, RetentionTakesNoMore
from chaos.sim.laws.room import LeadersHaveRoom
from chaos.sim.laws.sessions import NothingGoesUnnoticed
from chaos.sim.laws.snapshots import SnapshotsEqualTheLog
from chaos.sim.laws.wire import FencedBrokersAcknowledgeNothing, IsrProposalsAreFresh, VotesAreKept
from metadata.image import MetadataImage, PartitionState
from raft.ready import Role, Status

_IMAGES_KEPT = 200
_COSTLY_EVERY_LOOKS = 10
_COSTLIEST_EVERY_LOOKS = 50


class Invariants:
    """Call ``check`` often. A violation stays: what one look saw is held against the next.

    A process changes what it holds in memory only by running. So a look at the nodes of which
    something ran sees all that a look at all nodes would see. What is kept on disk, and what has
    to do with more than one look, is the matter of laws.
    """

    def __init__(self, cluster: SimCluster) -> None:
        self.looks = 0
        self.metadata = CommittedMetadata(cluster)
        self.committed = CommittedRecordsStay(self.metadata)
        self.everything = SomeoneHasEverything(self.committed)
        # Of what controllers hold in memory: checked whenever one of them has run.
        self._quorum_laws: list[Law] = [
            OneVotePerEpoch(),
            MajorityHolds(),
            VotersChangeOneByOne(),
            VotersChangeAsAsked(cluster),
            LeadersAreElected(cluster),
        ]
        self.reads = ReadsAreLinearizable()
        self.snapshots = SnapshotsEqualTheLog()
        # Each with how many looks there are from one check to the next.
        self._laws: list[tuple[Law, int]] = [
            (self.snapshots, _COSTLY_EVERY_LOOKS),
            (self.committed, _COSTLY_EVERY_LOOKS),
            (self.everything, _COSTLIEST_EVERY_LOOKS),
        ]
        self.deletions = DeletedRecordsStayDeleted(self.metadata)
        self._laws.append((self.deletions, _COSTLY_EVERY_LOOKS))
        self.violations: list[str] = []
        self.fenced = FencedBrokersAcknowledgeNothing(cluster, self._violated)
        self.highest: dict[PartitionId, int] = {}  # high watermark ever seen
        # Of the committed metadata: checked whenever they are others than at the last look.
        self._metadata_laws: list[Law] = [
            EpochsOnlyGrow(),
            ReplicasFitTogether(),
            self.fenced,
            self.reads,
        ]
        self.logs = LogsRememberWhatTheyHold(cluster, self.metadata, self.committed, self._violated)
        self._laws += [
            (self.logs, _COSTLY_EVERY_LOOKS),
            (MembersHaveEverything(self.metadata, self.highest), _COSTLY_EVERY_LOOKS),
            (FollowersKnowTheEpoch(), _COSTLY_EVERY_LOOKS),
            (NothingGoesUnnoticed(), _COSTLY_EVERY_LOOKS),
            (LeadersHaveRoom(), _COSTLIEST_EVERY_LOOKS),
            (DirectoriesFailWithTheirDevice(), _COSTLY_EVERY_LOOKS),
            (UnreadableReplicasAreGivenUp(), _COSTLY_EVERY_LOOKS),
        ]
        self.retention = RetentionTakesNoMore(self.committed, self.highest)
        self._laws += [
            (self.retention, 1),
            (CheckpointsClaimWhatIsThere(), _COSTLY_EVERY_LOOKS),
            (DurableIsDurable(), _COSTLY_EVERY_LOOKS),
            (DurableStartsAreDurable(), _COSTLY_EVERY_LOOKS),
        ]
        # These listen.
        VotesAreKept(cluster, self._violated)
        CommitsAreCounted(cluster, self._violated)
        IsrProposalsAreFresh(cluster, self.metadata, self._violated, self.highest)
        self._leaders = LeadersGoByTheirMetadata()
        self._cluster = cluster
        # The one node that ever led a quorum epoch, and the highest epoch each process was seen in.
        # (A process that dies may have known of an epoch that it had not written down yet.)
        self._quorum_leaders: dict[int, int] = {}
        self._quorum_epochs: dict[str, int] = {}
        self._statuses: dict[int, Status] = {}  # of each node, the one that was checked last
        # The committed metadata up to an offset: the same on every node that has got so far.
        self._images: dict[int, MetadataImage] = {}
        self._compared: dict[int, MetadataImage] = {}  # with those, the last one of each node
        self._newest: MetadataImage | None = None  # at the last look
        # All of each replica that the checks below are about, as of the last look.
        self._standings: dict[Replica, tuple[object, ...]] = {}
        # The one process that ever led a partition in a leader epoch, and its high watermark. A
        # restarted broker is another process: it may not continue its epoch.
        self._partition_leaders: dict[tuple[PartitionId, int], tuple[str, int]] = {}

    def check(self) -> None:
        """Look at every node of which something has run since the last look."""
        stirred = [node for node in self._cluster.nodes.values() if node.stirred()]
        if not stirred:
            return  # it was the network, or a client
        self.looks += 1
        self._look(stirred)
        for law, every in self._laws:
            if self.looks % every == 0:
                law.check(self._cluster, self._violated)

    def check_everything(self) -> None:
        """All nodes and all laws at once, as at the end of a run."""
        self._look(list(self._cluster.nodes.values()))
        for law, _ in self._laws:
            law.check(self._cluster, self._violated)

    def _look(self, stirred: Sequence[SimNode]) -> None:
        running = [node for node in stirred if node.alive and node.node is not None]
        for node in running:
            self._check_quorum(node)
            self._check_image(node)
        controllers = self._cluster.controllers
        if any(node.id in controllers for node in running):
            for law in self._quorum_laws:
                law.check(self._cluster, self._violated)
            image = self.metadata.newest
        else:
            image = self.metadata.seen
        whole = image is not self._newest
        if whole:
            self._newest = image
            for law in self._metadata_laws:
                law.check(self._cluster, self._violated)
            self._standings.clear()  # it may say of any replica what it is to be
        leading, following = self._moved(self._cluster.nodes.values() if whole else running)
        for node, replica in leading:
            self._check_leader(node, replica)
            self._leaders.check_leader(node, replica, self._violated)
            if image is not None:
                self._check_in_sync(node, replica, image)
        if image is not None and not whole:
            for node, replica in following:
                self._check_member(node, replica, image)

    @property
    def quorum_elections(self) -> int:
        """How many epochs of the quorum had a leader."""
        return len(self._quorum_leaders)

    def read_answered(self, who: str, needed: int, offset: int) -> None:
        """As ``ReadsAreLinearizable.answered``."""
        self.reads.answered(who, needed, offset, self._violated)

    def read_asked(self) -> int:
        """As ``ReadsAreLinearizable.asked``."""
        return self.reads.asked(self._cluster, self._violated)

    def _violated(self, what: str) -> None:
        self.violations.append(f"at {self._cluster.simulation.now:.6f}: {what}")

    # ---------------------------------------------------------------------------- metadata

    def _check_quorum(self, node: SimNode) -> None:
        assert node.node is not None
        quorum = node.node.quorum
        if quorum is None:
            return
        status = quorum.status
        if self._statuses.get(node.id) is status:
            return
        self._statuses[node.id] = status
        role, epoch, _ = status
        if role is Role.LEADER:
            leader = self._quorum_leaders.setdefault(epoch, node.id)
            if leader != node.id:
                self._violated(f"nodes {leader} and {node.id} both lead the quorum's epoch {epoch}")
        process = node.incarnation
        if epoch < self._quorum_epochs.get(process, 0):
            self._violated(f"{process} went back to the quorum's epoch {epoch}")
        self._quorum_epochs[process] = epoch

    def _check_image(self, node: SimNode) -> None:
        image = _image(node)
        if image is None or image.offset < 0 or self._compared.get(node.id) is image:
            return
        self._compared[node.id] = image
        known = self._images.setdefault(image.offset, image)
        if known is not image and known != image:
            self._violated(f"node {node.id} has other metadata up to offset {image.offset}")
        while len(self._images) > _IMAGES_KEPT:
            del self._images[min(self._images)]

    # -------------------------------------------------------------------------------- data

    def _moved(
        self, nodes: Iterable[SimNode]
    ) -> tuple[list[tuple[SimNode, Replica]], list[tuple[SimNode, Replica]]]:
        """Of their replicas those that are not what they were at the last look: those that lead,
        and the others."""
        leading: list[tuple[SimNode, Replica]] = []
        following: list[tuple[SimNode, Replica]] = []
        standings = self._standings
        for node in nodes:
            broker = _broker(node)
            for replica in () if broker is None else broker.replicas:
                machine, is_online = replica.machine, replica.state is ReplicaState.ONLINE
                end = replica.log.durable_offset if is_online else None
                standing = (
                    machine.state,
                    machine.min_insync,
                    machine.role,
                    machine.high_watermark,
                    end,
                )
                if standings.get(replica) != standing:
                    standings[replica] = standing
                    group = leading if machine.is_leader else following
                    group.append((node, replica))
        return leading, following

    def _check_leader(self, node: SimNode, replica: Replica) -> None:
        machine = replica.machine
        key = replica.id, machine.leader_epoch
        process = node.incarnation
        leader, high_watermark = self._partition_leaders.get(key, (process, 0))
        if leader != process:
            self._violated(f"{leader} and {process} both lead {replica!r} in epoch {key[1]}")
        if machine.high_watermark < high_watermark:
            self._violated(
                f"the high watermark of {replica!r} in epoch {key[1]} went back from "
                f"{high_watermark} to {machine.high_watermark}"
            )
        self._partition_leaders[key] = process, machine.high_watermark
        highest = self.highest.get(replica.id, 0)
        self.highest[replica.id] = max(highest, machine.high_watermark)

    def _check_in_sync(self, node: SimNode, leading: Replica, image: MetadataImage) -> None:
        """Every member of the committed ISR has everything below the high watermark."""
        state = image.partition(*leading.id)
        if state is None or not _agree(state, leading, node):
            return
        for member in state.isr:
            other = self._cluster.brokers[member]
            broker = _broker(other)
            replica = None if broker is None else broker.replicas.get(leading.id)
            if replica is not None:
                self._check_end(other, replica, leading)

    def _check_member(self, node: SimNode, replica: Replica, image: MetadataImage) -> None:
        """The same of one member, which has run while perhaps its leader has not."""
        state = image.partition(*replica.id)
        if state is None or state.leader < 0 or node.id not in state.isr:
            return
        leader = self._cluster.brokers[state.leader]
        broker = _broker(leader)
        leading = None if broker is None else broker.replicas.get(replica.id)
        if leading is not None and leading.machine.is_leader and _agree(state, leading, leader):
            self._check_end(node, replica, leading)

    def _check_end(self, node: SimNode, replica: Replica, leading: Replica) -> None:
        if replica.state is not ReplicaState.ONLINE:
            return
        end, high_watermark = replica.log.durable_offset, leading.machine.high_watermark
        if end < high_watermark:
            self._violated(
                f"{replica!r} on broker {node.id} is in the ISR, has {end} on disk, "
                f"below the high watermark {high_watermark}"
            )


def _agree(state: PartitionState, leading: Replica, node: SimNode) -> bool:
    """Whether the state is of this leader, and not older than what the leader goes by.

    It may be older when the controller that told the leader was gone before it was looked at.
    """
    known = leading.machine.state
    return (
        state.leader == node.id
        and state.leader_epoch == known.leader_epoch
        and state.partition_epoch >= known.partition_epoch
    )


def _broker(node: SimNode) -> Broker | None:
    running = node.running
    return None if running is None else running.broker


def _image(node: SimNode) -> MetadataImage | None:
    running = node.node
    if running is None:
        return None
    if running.controller is not None:
        return running.controller.image
    return None if running.broker is None else running.broker.image
