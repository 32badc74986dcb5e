"""Damage to synced data: bits flip, files and whole disks are lost.

The cluster must keep its promises in spite of all damage. So only partitions with
min.insync.replicas of 2 or more are damaged, and only one replica of each at a time. Another member
of the ISR or ELR must have everything that this replica has, whole, on disk, and not given up. The
replica counts as hurt until it is in the ISR again. A disk that fails all reads hurts every replica
on it, since a broker gives up a replica that it cannot read.

Only bits flip that nodes must notice: bits under a CRC, in a batch that is below a checkpoint or
has a whole batch behind it (a damaged end of a log looks like a torn write). Files are damaged
while their node is down: a running node does not read all of them again. A replica whose topic id
is lost is hurt, as one whose records are: its broker must not take it for one of any topic.
"""

from __future__ import annotations

import math
import posixpath
import random
from collections import Counter
from typing import NamedTuple

from broker.replication.replica import ReplicaState
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.world.disk import DiskImage, VirtualDisk
from metadata.effective import min_insync_replicas
from metadata.image import MetadataImage
from metadata.partitions import PartitionState
from raft.quorum import VoterSet
from runtime.quorum.state import FILE_NAME as QUORUM_STATE_FILE
from stele.ids import PartitionId, TopicPartition
from stele.wire.batch import CRC_POSITION, HEADER_SIZE, BatchError, BatchHeader, batches, check_crc
from storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CORRUPT_FILE,
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
)
from storage.directory_names import METADATA_PARTITION, METADATA_TOPIC

ROOT = "/data"
_CHECKPOINTS = (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE)
_BESIDE_A_LOG = (".index", ".timeindex", ".snapshot", LEADER_EPOCH_FILE, PARTITION_METADATA_FILE)
_LEAST_INSYNC = 2  # the least min.insync.replicas of a partition that may be hurt
_LEAST_VOTERS = 3  # no voter is taken from a smaller set


class _Place(NamedTuple):
    """One replica's log on disk."""

    id: PartitionId
    topic: str
    name: str
    state: PartitionState

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.id.partition)


class Damage:
    """Draws and does damage. ``hurt`` tells which replicas have not recovered yet."""

    def __init__(self, cluster: SimCluster, rng: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        # Nodes whose metadata log was damaged. A node that therefore refuses to start is wiped.
        self.metadata: set[int] = set()
        # The voter whose disk or metadata log is lost. It is the only one until it is added again.
        self.lost_voters: set[int] = set()
        self.voters_may_be_lost = False
        # By partition: the broker with the one hurt replica, until the replica is in the ISR again.
        self.hurt: dict[PartitionId, int] = {}
        self._cluster = cluster
        self._rng = rng

    # ----------------------------------------------------------------------------------- acts

    def flip_bit(self, node: SimNode) -> bool:
        """Flip a bit in a batch of a replica or of the node's metadata log. The node is down."""
        _require_down(node)
        places = self._places_to_hurt(node)
        if self._may_hurt_metadata(node) and self._rng.random() < 0.3:
            return self._flip_metadata(node)
        while places:
            place = places.pop(self._rng.randrange(len(places)))
            directory = node.replica_path(place.name)
            if self._flip(node, directory, place.key, self._floor(node, place)):
                self.hurt[place.id] = node.id
                self.counts["bits flipped in replicas"] += 1
                return True
        return False

    def spoil_sector(self, node: SimNode, *, only: PartitionId | None = None) -> bool:
        """Spoil a sector in a segment of a replica. The node may run: it notices the sector when it
        reads there."""
        places = [place for place in self._places_to_hurt(node) if only in (None, place.id)]
        while places:
            place = places.pop(self._rng.randrange(len(places)))
            found = [
                (path, position, header)
                for path in self._segments(node, node.replica_path(place.name))
                for position, header in _sound(self._disk(node).file(path).durable)
            ]
            if found:
                path, position, header = self._rng.choice(found)
                self._disk(node).spoil(path, position + self._rng.randrange(header.size_bytes))
                self.hurt[place.id] = node.id
                self.counts["sectors spoiled"] += 1
                return True
        return False

    def fail_reads(self, node: SimNode) -> bool:
        """Fail all reads of the disk. The node may run. All replicas on it count as hurt: its
        broker gives up a replica that it cannot read if another one may lead, and at a start in any
        case."""
        if node.id in self._cluster.brokers:
            self._forget_healed()
            image = self._image()
            if image is None:
                return False
            places = list(self._places(node, image))
            if not all(self._may_be_given_up(node, place) for place in places):
                return False
            for place in places:
                self.hurt[place.id] = node.id
        self._disk(node).faults.failing_read = True
        return True

    def lose_file(self, node: SimNode) -> bool:
        """Lose a file of a partition or of the directory, or the metadata log. The node is down."""
        _require_down(node)
        lot = self._rng.random()
        if lot < 0.25:
            return self.lose_checkpoint(node)
        if lot < 0.5 and self._may_hurt_metadata(node):
            return self._lose_metadata(node)
        places = self._places_to_hurt(node)
        if not places:
            return False
        place = self._rng.choice(places)
        if self._rng.random() < 0.5:
            return self._lose_beside(node, place)
        return self._lose_segment(node, place)

    def wipe(self, node: SimNode) -> bool:
        """Give a broker an empty disk. The node is down."""
        _require_down(node)
        if node.id not in self._cluster.brokers:
            return False
        if self._is_controller(node) and node.shares_metadata_disk:
            return self.lose_voter(node)
        held = self._replicas_to_wipe(node)
        if held is None:
            return False
        self._lose_replicas(node, held)
        if node.shares_metadata_disk:
            self.metadata.discard(node.id)
        return True

    def restore(self, node: SimNode, image: DiskImage, path: str = ROOT) -> bool:
        """Put an earlier state in the place of a broker's disk, with the directory ``path``. The
        node is down."""
        _require_down(node)
        held = self._replicas_to_wipe(node)
        if held is None:
            return False
        self._disk(node).restore(path, image)
        for place in held:
            self.hurt[place.id] = node.id
        if path == ROOT:
            self.metadata.discard(node.id)
        self.counts["disks restored" if path == ROOT else "log directories restored"] += 1
        return True

    def last_incarnation(self, node: SimNode, directory_id: bytes) -> bytes | None:
        """The broker's process that registered last with this log directory open, by the committed
        metadata. None if nobody knows it."""
        image = self._image()
        registration = None if image is None else image.broker(node.id)
        use = None if registration is None else registration.last_use(directory_id)
        return None if use is None else use.incarnation_id or None

    def lose_voter(self, node: SimNode) -> bool:
        """Kill a controller and give it an empty disk, if the quorum can spare it."""
        if not self.may_lose_voter(node):
            return False
        # This asks before the kill: without an active controller it cannot be told.
        held = self._replicas_to_wipe(node) if node.shares_metadata_disk else None
        if node.alive:
            node.kill()
        self.wipe_voter(node)
        if held is not None:
            self._lose_replicas(node, held)
        return True

    def wipe_voter(self, node: SimNode) -> None:
        """Give a controller an empty disk for its metadata. The node is down."""
        _require_down(node)
        self._disk(node).lose(node.metadata_directory)
        self.lost_voters.add(node.id)
        self.metadata.discard(node.id)
        self.counts["voters wiped"] += 1

    def _lose_replicas(self, node: SimNode, held: list[_Place]) -> None:
        self._disk(node).lose(ROOT)
        for place in held:
            self.hurt[place.id] = node.id
        self.counts["disks wiped"] += 1

    def replace_metadata(self, node: SimNode) -> None:
        """Wipe a node that refuses to start because of its metadata log, as an operator does."""
        if self._is_controller(node):
            self.wipe_voter(node)
            return
        self._disk(node).lose(node.metadata_log)
        self.metadata.discard(node.id)
        self.counts["metadata logs wiped"] += 1

    # ------------------------------------------------------------------------ what may be hurt

    def _disk(self, node: SimNode) -> VirtualDisk:
        return node.machine.disk

    def _is_controller(self, node: SimNode) -> bool:
        return node.id in self._cluster.controllers

    def may_lose_voter(self, node: SimNode) -> bool:
        """Whether the other voters are a majority that holds everything committed, and other
        brokers have the replicas on this disk.

        The voter must be the only one that is lost, and the quorum must know its disk: then it can
        tell the empty disk from the lost one, and every majority that committed something overlaps
        every majority of the others.
        """
        if not (self.voters_may_be_lost and self.has_voter_to_spare(node)):
            return False
        return not node.shares_metadata_disk or self._replicas_to_wipe(node) is not None

    def has_voter_to_spare(self, node: SimNode) -> bool:
        """The same without regard to replicas and ``voters_may_be_lost``, for callers that replace
        the lost voter themselves."""
        voters = self._cluster.settled_voters
        return not self.lost_voters and node.id in voters.ids and self.is_one_to_lose(node, voters)

    def is_one_to_lose(self, node: SimNode, voters: VoterSet) -> bool:
        """Whether the others stay a majority, whichever of the requested removals take effect.

        Example: if one of three voters is lost and another one is removed, no majority is left.
        """
        staying = self._cluster.removals.spared(voters)
        return len({node.id, *staying.ids}) >= _LEAST_VOTERS

    def _may_hurt_metadata(self, node: SimNode) -> bool:
        """Whether the cluster can spare the node's metadata log. A voter with damaged metadata gets
        a new disk some time later. Replicas on the same disk are lost then, and it cannot be told
        now whether other brokers will have them."""
        if not self._disk(node).names(node.metadata_log):
            return False
        if self._is_controller(node):
            return not node.shares_metadata_disk and self.may_lose_voter(node)
        return True

    def _metadata_is_hurt(self, node: SimNode, what: str) -> bool:
        self.metadata.add(node.id)
        if self._is_controller(node):
            self.lost_voters.add(node.id)
        self.counts[what] += 1
        return True

    def _image(self) -> MetadataImage | None:
        """The committed metadata; None while no established controller runs that knows it."""
        leading = self._cluster.established_controller
        if leading is None or leading.process is None or leading.process.paused:
            return None
        assert leading.node is not None
        assert leading.node.controller is not None
        return leading.node.controller.image

    def _places(self, node: SimNode, image: MetadataImage) -> list[_Place]:
        disk = self._disk(node)
        here = {name for directory in node.config.log_dirs for name in disk.names(directory)}
        return [
            _Place(PartitionId(topic.topic_id, number), topic.name, f"{topic.name}-{number}", state)
            for topic, number, state in image.sorted_partitions()
            if node.id in state.replicas and f"{topic.name}-{number}" in here
        ]

    def _replicas_to_wipe(self, node: SimNode) -> list[_Place] | None:
        """All replicas of a broker, if other brokers have everything in them. None if not, or if
        the committed metadata are unknown."""
        self._forget_healed()
        image = self._image()
        if image is None:
            return None
        places = self._places(node, image)
        held = [
            _Place(PartitionId(topic.topic_id, number), topic.name, f"{topic.name}-{number}", state)
            for topic, number, state in image.sorted_partitions()
            if node.id in state.replicas
        ]
        if len(places) < len(held) or not all(self._may_hurt(node, image, place) for place in held):
            return None
        return held

    def _places_to_hurt(self, node: SimNode) -> list[_Place]:
        self._forget_healed()
        image = self._image()
        if image is None:
            return []
        return [place for place in self._places(node, image) if self._may_hurt(node, image, place)]

    def _may_hurt(self, node: SimNode, image: MetadataImage, place: _Place) -> bool:
        """Whether the cluster can spare this replica."""
        if place.id in self.hurt or min_insync_replicas(image, place.topic) < _LEAST_INSYNC:
            return False
        return self._another_has_all(node, place)

    def _may_be_given_up(self, node: SimNode, place: _Place) -> bool:
        """The same for a replica that may be hurt already."""
        return self.hurt.get(place.id, node.id) == node.id and self._another_has_all(node, place)

    def _another_has_all(self, node: SimNode, place: _Place) -> bool:
        """Whether another replica that may lead has everything that this one has, whole and on
        disk."""
        mine = self._batches(node, place.name)
        for broker in (*place.state.isr, *place.state.elr):
            other = self._cluster.brokers[broker]
            if other is node or self._is_given_up(other, place):
                continue
            theirs = self._batches(other, place.name)
            if len(theirs) >= len(mine) and theirs[: len(mine)] == mine:
                return True
        return False

    def _is_given_up(self, node: SimNode, place: _Place) -> bool:
        """Whether the broker has given up its replica, or will as soon as it reads it. The metadata
        show this only once a controller has heard of it."""
        disk = self._disk(node)
        path = node.replica_path(place.name)
        if disk.faults.failing_read or disk.is_dead(path):
            return True
        if disk.find(f"{path}/{CORRUPT_FILE}") is not None:
            return True
        running = node.running
        replicas = () if running is None or running.broker is None else running.broker.replicas
        return any(
            replica.id == place.id and replica.state is ReplicaState.CORRUPT for replica in replicas
        )

    def _batches(self, node: SimNode, name: str) -> list[tuple[int, int]]:
        """Base offset and CRC of every whole batch on disk."""
        return [
            (header.base_offset, header.crc)
            for path in self._segments(node, node.replica_path(name))
            for _, header in _sound(self._disk(node).file(path).durable)
        ]

    def _segments(self, node: SimNode, directory: str) -> list[str]:
        names = self._disk(node).names(directory)
        return [f"{directory}/{each}" for each in names if each.endswith(".log")]

    def _floor(self, node: SimNode, place: _Place) -> int:
        """The offset below which missing records are surely corruption, by the checkpoints on
        disk."""
        path = node.replica_path(place.name)
        return max(
            self._checkpointed(node, f"{posixpath.dirname(path)}/{file}", place.key)
            for file in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE)
        )

    def _checkpointed(self, node: SimNode, path: str, key: TopicPartition) -> int:
        """The least that the node's checkpoint may say when the node is back."""
        return min(self._may_be_checkpointed(node, path, key))

    def _may_be_checkpointed(self, node: SimNode, path: str, key: TopicPartition) -> list[int]:
        """What the node's checkpoint may say when the node is back. A power loss undoes the rename
        of a new checkpoint if the directory was not synced after it."""
        disk = self._disk(node)
        if disk.find(path) is None:
            return [0]
        found = disk.file(path).durable, disk.durable_file(path)
        return [decode_offsets(each.decode(), path).get(key, 0) if each else 0 for each in found]

    def _forget_healed(self) -> None:
        """Forget hurt replicas that are whole and in the ISR again, or that were removed."""
        image = self._image()
        if image is None:
            return
        for partition, broker in list(self.hurt.items()):
            state = image.partition(*partition)
            if (
                state is None
                or broker not in state.replicas
                or (broker in state.isr and self._is_whole(broker, partition))
            ):
                del self.hurt[partition]

    def _is_whole(self, broker: int, partition: PartitionId) -> bool:
        """Whether no damage is left. Damage in an old segment stays unnoticed until somebody reads
        there, so the ISR alone does not tell."""
        node = self._cluster.brokers[broker]
        if node.node is None or node.node.broker is None or not node.ready:
            return False
        if self._disk(node).faults.failing_read:
            return False
        for replica in node.node.broker.replicas:
            if replica.id == partition and replica.state is ReplicaState.ONLINE:
                segments = self._segments(node, node.replica_path(repr(replica)))
                if any(self._disk(node).file(path).bad_sectors for path in segments):
                    return False
                return all(
                    check_crc(data, position, header)
                    for data in self._contents(node, repr(replica))
                    for position, header in batches(data)
                )
        return False

    def _contents(self, node: SimNode, name: str) -> list[bytearray]:
        return [
            self._disk(node).file(path).data
            for path in self._segments(node, node.replica_path(name))
        ]

    # --------------------------------------------------------------------------- doing it

    def _flip(self, node: SimNode, directory: str, key: TopicPartition, floor: int) -> bool:
        """Flip a bit in a log's batch that is below ``floor``, or in one that others follow."""
        paths = self._segments(node, directory)
        found = [
            (path, position, header)
            for path in paths
            for position, header in _sound(self._disk(node).file(path).durable)
        ]
        if not found:
            return False
        scanned_from = self._surely_scanned_from(node, directory, key)
        last = found[-1][2]
        noticed = []
        for path, position, header in found:
            is_scanned = path == paths[-1] and header.base_offset >= scanned_from
            # From its CRC on, each byte of a batch is the CRC or under it.
            first = CRC_POSITION if is_scanned else HEADER_SIZE
            # Compaction leaves batches without records: nothing follows their header.
            if (header is not last or header.base_offset < floor) and first < header.size_bytes:
                noticed.append((path, position, header, first))
        if not noticed:
            return False
        path, position, header, first = self._rng.choice(noticed)
        at = position + self._rng.randrange(first, header.size_bytes)
        self._disk(node).flip_bit(path, at, self._rng.randrange(8))
        return True

    def _surely_scanned_from(self, node: SimNode, directory: str, key: TopicPartition) -> float:
        """The offset from which on the node's next start reads every batch of the log's last
        segment.

        Recovery skips what is below its recovery point, and everything after a clean shutdown.
        Damage may stay unnoticed there for long, and laws read the headers meanwhile: so headers
        stay whole there.
        """
        parent = posixpath.dirname(directory)
        root = parent if parent in node.config.log_dirs else ROOT
        if self._disk(node).find(f"{root}/{CLEAN_SHUTDOWN_FILE}") is not None:
            return math.inf
        home = directory if key.topic == METADATA_TOPIC else parent
        return max(self._may_be_checkpointed(node, f"{home}/{RECOVERY_POINT_FILE}", key))

    def _flip_metadata(self, node: SimNode) -> bool:
        key = TopicPartition(METADATA_TOPIC, METADATA_PARTITION)
        floor = self._checkpointed(node, f"{node.metadata_log}/{RECOVERY_POINT_FILE}", key)
        if not self._flip(node, node.metadata_log, key, floor):
            return False
        return self._metadata_is_hurt(node, "bits flipped in metadata logs")

    def lose_checkpoint(self, node: SimNode) -> bool:
        """Lose one checkpoint file. Recovery point and high watermark only say where recovery may
        begin and which damage is no torn write. Log starts follow from the first segments, unless
        these hold deleted records: then the file is kept."""
        if node.id in self.hurt.values():
            return False
        present = set(self._disk(node).names(ROOT))
        names = [name for name in _CHECKPOINTS if name in present]
        if LOG_START_FILE in names and self._holds_deleted_records(node):
            names.remove(LOG_START_FILE)
        if not names:
            return False
        self._disk(node).lose(f"{ROOT}/{self._rng.choice(names)}")
        self.counts["checkpoints lost"] += 1
        return True

    def _holds_deleted_records(self, node: SimNode) -> bool:
        """Whether a log holds records below its start. Only the file of log starts tells that (as
        in Kafka). Without it the deleted records would be readable again."""
        disk, path = self._disk(node), f"{ROOT}/{LOG_START_FILE}"
        for content in (bytes(disk.file(path).data), disk.durable_file(path)):
            starts = decode_offsets(content.decode(), path) if content else {}
            for key, start in starts.items():
                if any(base < start for base in self._bases(node, f"{ROOT}/{key}")):
                    return True
        return False

    def _bases(self, node: SimNode, directory: str) -> list[int]:
        """Base offsets of the segments that exist, or may exist again after a power loss."""
        if self._disk(node).find(directory) is None:
            return []
        found = self._disk(node).directory(directory)
        names = {*found.entries, *found.durable}
        return [int(name.removesuffix(".log")) for name in names if name.endswith(".log")]

    def _lose_beside(self, node: SimNode, place: _Place) -> bool:
        """Lose a file that the broker can rebuild from the log (an index, a producer snapshot or
        another one), or the topic id, without which the broker gives the replica up.

        The topic id of a log without a checkpoint is kept. Its loss would look like a power loss
        before the first sync, which leaves nothing that counts. The first snapshot of a log is kept
        whose first segments are deleted: nothing else tells of their producers.
        """
        directory = node.replica_path(place.name)
        names = [name for name in self._disk(node).names(directory) if name.endswith(_BESIDE_A_LOG)]
        snapshots = [name for name in names if name.endswith(".snapshot")]
        if snapshots and min(self._bases(node, directory), default=0) > 0:
            names.remove(min(snapshots))
        if PARTITION_METADATA_FILE in names and self._floor(node, place) == 0:
            names.remove(PARTITION_METADATA_FILE)
        if not names:
            return False
        name = self._rng.choice(names)
        self._disk(node).lose(f"{directory}/{name}")
        if name == PARTITION_METADATA_FILE:
            self.hurt[place.id] = node.id
            self.counts["topic ids of logs lost"] += 1
        else:
            self.counts["files beside logs lost"] += 1
        return True

    def _lose_segment(self, node: SimNode, place: _Place) -> bool:
        """Lose a segment that a checkpoint knows of. The loss of another one could not be noticed:
        it would be as if the segment had never been made."""
        floor = self._floor(node, place)
        known = [
            path
            for path in self._segments(node, node.replica_path(place.name))
            if int(path.rpartition("/")[2].removesuffix(".log")) < floor
        ]
        if not known:
            return False
        self._disk(node).lose(self._rng.choice(known))
        self.hurt[place.id] = node.id
        self.counts["segments lost"] += 1
        return True

    def _lose_metadata(self, node: SimNode) -> bool:
        """Lose a broker's copy of the metadata log, or one of its files. A voter loses only its
        quorum state: without state and log it would take itself for a new voter.
        """
        names, votes = self._disk(node).names(node.metadata_log), self._is_controller(node)
        if votes:
            names = [name for name in names if name == QUORUM_STATE_FILE]
        if names and (self._rng.random() < 0.5 or votes):
            self._disk(node).lose(f"{node.metadata_log}/{self._rng.choice(names)}")
        elif not votes:
            self._disk(node).lose(node.metadata_log)
        else:
            return False
        return self._metadata_is_hurt(node, "files of metadata logs lost")


def _require_down(node: SimNode) -> None:
    """A process does not expect its files to change."""
    assert not node.alive, f"{node.host} runs"


def _sound(data: bytes | bytearray) -> list[tuple[int, BatchHeader]]:
    """The whole batches with the right CRC, up to the first bytes that are no batch."""
    found = []
    try:
        for position, header in batches(data):
            if check_crc(data, position, header):
                found.append((position, header))
    except BatchError:
        pass  # batches behind this place cannot be found
    return found
