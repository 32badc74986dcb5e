"""Laws: invariants of a simulated cluster that need a memory or a look at the disks.

Each is an object with a name. All of them look from outside: they read what nodes hold in memory
and what machines have on disk, and disturb neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, Self

from broker.partition.ids import PartitionId
from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import (
    START,
    Place,
    batches_from,
    first_base,
    is_durable,
    readable_batches_from,
    was_destroyed,
)
from chaos.sim.cluster.view import newest_image, online
from metadata.image import MetadataImage, PartitionState
from raft.core import RaftCore
from raft.quorum import ReplicaKey, VoterSet
from raft.ready import Role
from stele.wire.batch import BatchHeader
from storage.log import PartitionLog

Report = Callable[[str], None]


class Law(Protocol):
    """Something that always holds; ``check`` reports where it does not."""

    name: str

    def check(self, cluster: SimCluster, report: Report) -> None: ...


class OneVotePerEpoch:
    """A vote is never given twice in an epoch, also across a crash."""

    name = "one vote per epoch"

    def __init__(self) -> None:
        # Only votes that are durable: an earlier one has promised nothing yet.
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}

    def check(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.controllers.values():
            core = node.core
            if core is None:
                continue
            vote = core.vote
            if vote is None or not core.promises_durable:
                continue
            first = self._votes.setdefault((core.local, core.epoch), vote)
            if first != vote:
                report(
                    f"controller {node.id} voted for {first.id} and for {vote.id} "
                    f"in epoch {core.epoch}"
                )


class MajorityHolds:
    """What is below the quorum's high watermark is durable on a majority; it never goes back."""

    name = "a majority holds what is committed"

    def __init__(self) -> None:
        self._high_watermarks: dict[str, int] = {}  # by process

    def check(self, cluster: SimCluster, report: Report) -> None:
        ends = durable_ends(cluster)
        cores = [(node, core) for node in cluster.controllers.values() if (core := node.core)]
        for node, core in cores:
            process, high_watermark = node.incarnation, core.high_watermark
            before = self._high_watermarks.get(process, -1)
            if high_watermark < before:
                report(f"{process}: the quorum's high watermark went {before} to {high_watermark}")
            self._high_watermarks[process] = high_watermark
            if core.status.role is Role.LEADER and not any(
                is_held(voters, ends, high_watermark) for voters in deciding(core)
            ):
                report(f"{process} committed {high_watermark}; {ends} are on disk")


def deciding(core: RaftCore) -> list[VoterSet]:
    """By whose majority a leader may have committed: until the newest voters are committed
    themselves, those before them."""
    history = core.voter_history
    settled = core.high_watermark > history.latest_offset
    return [history.latest] if settled else [history.latest, history.previous]


def durable_ends(cluster: SimCluster) -> dict[ReplicaKey, int]:
    """How far each controller that runs has the metadata log on disk.

    One that is down, or lost its disk, may have acknowledged more than it was seen with.
    """
    cores = [core for node in cluster.controllers.values() if (core := node.core)]
    return {core.local: core.log.durable_end_offset for core in cores}


def is_held(voters: VoterSet, ends: Mapping[ReplicaKey, int], offset: int) -> bool:
    """By a majority, as far as is known."""
    behind = 0
    for voter in voters.voters:
        end = ends.get(voter.key)
        if end is None:  # not there, or its disk is not known yet
            end = next((end for key, end in ends.items() if voter.key.matches(key)), offset)
        behind += end < offset
    return behind * 2 < len(voters) or not len(voters)


class CommittedMetadata:
    """The newest committed metadata that a controller was ever seen with.

    What is committed stays so, also while all who know it are down: a controller that still runs
    may be cut off, or have restarted, and know an ISR and a leader of long ago.
    """

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        # As of the last look: still so if no controller has run since.
        self.seen: MetadataImage | None = None

    @property
    def newest(self) -> MetadataImage | None:
        """As of now; None: there was no controller yet."""
        image = newest_image(self._cluster)
        if image is not None and (self.seen is None or image.offset > self.seen.offset):
            self.seen = image
        return self.seen


class EpochsOnlyGrow:
    """Leader epochs and partition epochs of the committed metadata only grow."""

    name = "epochs only grow"

    def __init__(self) -> None:
        self._image: MetadataImage | None = None

    def check(self, cluster: SimCluster, report: Report) -> None:
        image = newest_image(cluster)
        if image is None or (self._image is not None and image.offset <= self._image.offset):
            return
        if self._image is not None:
            for topic, number, before in self._image.sorted_partitions():
                now = image.partition(topic.topic_id, number)
                if now is None or now == before:
                    continue
                if (
                    now.leader_epoch < before.leader_epoch
                    or now.partition_epoch <= before.partition_epoch
                    or (now.leader != before.leader and now.leader_epoch == before.leader_epoch)
                ):
                    report(f"{topic.name}-{number} went from {before} to {now}")
        self._image = image


class Committed(NamedTuple):
    """A batch, as the first replica that committed it had it."""

    last_offset: int
    crc: int
    leader_epoch: int
    newest_ms: int
    size_bytes: int

    @classmethod
    def of(cls, header: BatchHeader) -> Self:
        return cls(
            header.last_offset,
            header.crc,
            header.leader_epoch,
            header.max_timestamp_ms,
            header.size_bytes,
        )


class CommittedRecordsStay:
    """Committed prefixes are the same everywhere and are never cut; epoch caches agree with logs.

    The first replica that commits a batch says what it is. A partition's leader always has all
    that was ever committed, but for what a recorded unclean election has cut: what its leader has
    of it stays committed, and the others are compared again once they are in the ISR.
    """

    name = "what is committed stays"

    def __init__(self, metadata: CommittedMetadata) -> None:
        self.compared = 0  # records
        self.truncations = 0
        self._metadata = metadata
        self._batches: dict[PartitionId, dict[int, Committed]] = {}  # by base offset
        self._ends: dict[PartitionId, int] = {}
        self._unclean: dict[PartitionId, int] = {}  # elections of which all is known by now
        # (log, its truncation generation, what to read next) of a replica in a process, which gets
        # a new log when it is removed and added again.
        self._read: dict[tuple[str, PartitionId], tuple[PartitionLog, int, Place]] = {}
        # What was committed there when it was read: while that is so there is nothing to read.
        self._compared: dict[tuple[str, PartitionId], int] = {}

    def check(self, cluster: SimCluster, report: Report) -> None:
        image = self._metadata.newest
        cut = set() if image is None else self._cut_by_unclean_elections(cluster, image)
        for node, replica in online(cluster):
            if replica.id in cut:
                continue
            elections = self._unclean.get(replica.id, 0)
            if replica.machine.state.unclean_elections != elections or (
                elections and node.id not in replica.machine.state.isr
            ):
                continue  # it may have more than its leader, and has yet to hear of it
            self._compare(cluster, node, replica, report)
            if image is not None and replica.machine.is_leader:
                self._check_leader(node, replica, image, report)

    def _cut_by_unclean_elections(
        self, cluster: SimCluster, image: MetadataImage
    ) -> set[PartitionId]:
        """Forget what they cut; partitions of which the elected leader was not seen yet."""
        unseen = set()
        for topic, number, state in image.sorted_partitions():
            partition = PartitionId(topic.topic_id, number)
            if state.unclean_elections > self._unclean.get(partition, 0):
                unseen.add(partition)
        for node, replica in online(cluster) if unseen else ():
            if replica.id in unseen and replica.machine.is_leader:
                elections = replica.machine.state.unclean_elections
                state_now = image.partition(*replica.id)
                if state_now is not None and elections == state_now.unclean_elections:
                    self._keep_what_it_has(cluster, node, replica)
                    self._unclean[replica.id] = elections
                    unseen.discard(replica.id)
        return unseen

    def _keep_what_it_has(self, cluster: SimCluster, node: SimNode, leading: Replica) -> None:
        known, kept, end = self._batches.get(leading.id, {}), {}, 0
        for _, header in batches_from(node, repr(leading)):
            found = Committed.of(header)
            if known.get(header.base_offset) != found:
                break
            kept[header.base_offset] = found
            end = header.next_offset
        self._batches[leading.id], self._ends[leading.id] = kept, end
        for key in [key for key in self._read if key[1] == leading.id]:
            del self._read[key], self._compared[key]

    def _compare(
        self, cluster: SimCluster, node: SimNode, replica: Replica, report: Report
    ) -> None:
        log = replica.log
        key = node.incarnation, replica.id
        fresh = log, log.truncation_generation, START
        read_log, generation, place = self._read.get(key, fresh)
        if read_log is not log:
            _, generation, place = fresh
        elif generation != log.truncation_generation:
            self.truncations += 1
            _, generation, place = fresh
        elif self._compared.get(key) == min(replica.machine.high_watermark, log.end_offset):
            return
        committed = min(replica.machine.high_watermark, log.end_offset)
        known = self._batches.setdefault(replica.id, {})
        for at, header in batches_from(node, repr(replica), place):
            if header.next_offset > committed:
                break
            found = Committed.of(header)
            first = known.setdefault(header.base_offset, found)
            if first != found:
                report(
                    f"{replica!r} on broker {node.id} has {found} at {header.base_offset}, "
                    f"where {first} was committed"
                )
            epoch = log.epochs.epoch_for(header.base_offset)
            is_deleted = header.base_offset < log.start_offset
            if epoch != header.leader_epoch and not is_deleted:
                report(
                    f"{replica!r} on broker {node.id}: its epochs say {epoch} at "
                    f"{header.base_offset}, its log {header.leader_epoch}"
                )
            self.compared += header.record_count
            self._ends[replica.id] = max(self._ends.get(replica.id, 0), header.next_offset)
            place = at.behind(header)
        self._read[key] = log, generation, place
        self._compared[key] = committed

    def is_committed(self, partition: PartitionId, header: BatchHeader) -> bool:
        """Whether this very batch was seen to be committed."""
        known = self._batches.get(partition, {}).get(header.base_offset)
        return known == Committed.of(header)

    def batches_of(self, partition: PartitionId) -> Mapping[int, Committed]:
        """All that were seen to be committed, by base offset; those that are gone since, too."""
        return self._batches.get(partition, {})

    def is_up_to(self, partition: PartitionId, state: PartitionState) -> bool:
        """Whether all is known of what unclean elections have cut."""
        return state.unclean_elections == self._unclean.get(partition, 0)

    def last_batch(self, partition: PartitionId) -> tuple[int, int, int] | None:
        """(base offset, last offset, CRC) of the last batch that was committed."""
        known = self._batches.get(partition)
        return None if not known else (last := max(known), *known[last][:2])

    def _check_leader(
        self, node: SimNode, replica: Replica, image: MetadataImage, report: Report
    ) -> None:
        state = image.partition(*replica.id)
        if (
            state is None
            or state.leader != node.id
            or state.leader_epoch != replica.machine.leader_epoch
        ):
            return
        committed = self._ends.get(replica.id, 0)
        if replica.log.end_offset < committed:
            report(
                f"{replica!r}: its leader {node.id} ends at {replica.log.end_offset}, "
                f"and {committed} was committed"
            )


class SomeoneHasEverything:
    """ISR and eligible leaders together hold a replica with every committed record, on disk."""

    name = "ISR or ELR hold what is committed"

    def __init__(self, committed: CommittedRecordsStay) -> None:
        self._committed = committed
        # Of which every replica was damaged on purpose after its sync: nothing can hold it all.
        self.damaged: set[str] = set()
        # Where the batch was: the next one is behind it as a rule.
        self._places: dict[tuple[int, str], Place] = {}

    def check(self, cluster: SimCluster, report: Report) -> None:
        leading = cluster.established_controller
        if leading is None:
            return  # the others may not know yet, or no more, what is committed
        assert leading.node is not None
        assert leading.node.controller is not None
        image, newest = leading.node.controller.image, newest_image(cluster)
        if newest is not None and image.offset < newest.offset:
            return  # it has just been elected, and does not know yet of all that is committed
        for topic, number, state in image.sorted_partitions():
            name = f"{topic.name}-{number}"
            partition = PartitionId(topic.topic_id, number)
            known = self._committed.last_batch(partition)
            if known is None or name in self.damaged:
                continue
            if not self._committed.is_up_to(partition, state):
                continue
            members = sorted({*state.isr, *state.elr})
            if not any(self._has(cluster, cluster.brokers[each], name, known) for each in members):
                report(f"{name}: none of {members} has the batch committed at {known[0]}")

    def _has(
        self, cluster: SimCluster, node: SimNode, name: str, known: tuple[int, int, int]
    ) -> bool:
        """Whether a broker has this batch, told by base offset, last offset and CRC; or had it, and
        begins behind it: retention, which has a law of its own, has taken it."""
        place = self._places.get((node.id, name), START)
        if not self._begins_at_or_before(cluster, node, name, place, known[0]):
            place = START
        for at, header in readable_batches_from(node, name, place):
            if header.base_offset == known[0]:
                self._places[node.id, name] = at
                return (header.base_offset, header.last_offset, header.crc) == known
        first = first_base(node, name)
        return first is not None and first > known[0]

    def _begins_at_or_before(
        self, cluster: SimCluster, node: SimNode, name: str, place: Place, offset: int
    ) -> bool:
        """Whether a batch stands at ``place`` still, and it is not behind ``offset``."""
        found = next(readable_batches_from(node, name, place), None)
        return found is not None and found[0] == place and found[1].base_offset <= offset


class Acknowledged:
    """What is acknowledged is on as many disks as promised. Asked at each acknowledgement."""

    name = "acknowledged means on disk"

    def __init__(self) -> None:
        self.asked = 0

    def check_record(
        self, cluster: SimCluster, partition: str, value: bytes, needed: int, report: Report
    ) -> None:
        """``value`` stands uncompressed in one record only."""
        self.asked += 1
        holders = []
        for node in cluster.brokers.values():
            if is_durable(node, partition, value):
                holders.append(node.id)
                if len(holders) == needed:
                    return
        # The word of it may still have been on its way when a disk was damaged.
        holders += [
            node.id
            for node in cluster.brokers.values()
            if node.id not in holders and was_destroyed(node, partition, value)
        ]
        if len(holders) < needed:
            report(
                f"{partition}: {value!r} was acknowledged, and is on the disks of {holders} only; "
                f"{needed} were promised"
            )
