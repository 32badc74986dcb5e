"""For tests of the simulator's laws: a fake cluster with the content that a test gives it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from broker.partition.effects import BrokerStatus, LogPosition
from broker.partition.machine import PartitionMachine
from broker.replication.replica import Replica
from chaos.sim.laws.law import Law
from chaos.sim.laws.quorum_view import QuorumView
from chaos.sim.laws.scene import Scene
from chaos.sim.world.process import Machine
from chaos.sim.world.simulation import Simulation
from metadata.brokers import BrokerRegistration, Brokers
from metadata.image import MetadataImage
from metadata.partitions import PartitionState
from metadata.topics import Topic, Topics
from raft.quorum import ReplicaKey, Voter, VoterSet
from raft.ready import Role, Status
from raft.voter_history import VoterHistory
from stele.ids import PartitionId, TopicPartition, encode_uuid
from storage.checkpoints import (
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    MetaProperties,
    encode_partition_metadata,
)
from storage.config import LogConfig
from storage.directory_names import METADATA_PARTITION, METADATA_TOPIC
from storage.opening import open_log
from tests.support.timing import HandClock
from world.disk import Disk

if TYPE_CHECKING:
    from chaos.sim.cluster.cluster import SimCluster
    from chaos.sim.cluster.node import SimNode

CONTROLLERS = (101, 102, 103)
BROKERS = (1, 2, 3)
METADATA_LOG = f"/data/{METADATA_TOPIC}-{METADATA_PARTITION}"
TOPIC = "t"
PARTITION = PartitionId(bytes(15) + b"t", 0)


def disk_id(number: int) -> bytes:
    """The id of a directory."""
    return bytes([number]) * 16


def voter(node_id: int, disk: int = 0) -> Voter:
    """A voter on the disk of that number; 0 means that its disk is not known."""
    return Voter(ReplicaKey(node_id, disk_id(disk)), f"c{node_id}:9093")


def voters(*ids: int) -> VoterSet:
    """Voters, each on the disk of its own number."""
    return VoterSet(voter(node_id, node_id) for node_id in ids)


def history(*sets: tuple[int, VoterSet], base: VoterSet | None = None) -> VoterHistory:
    """A history with these voter sets by offset, after the configured one."""
    found = VoterHistory(base or VoterSet([]))
    for offset, made in sets:
        found.append(offset, made)
    return found


def image(
    offset: int, *states: PartitionState, fenced: Iterable[int] = (), **more: Any
) -> MetadataImage:
    """An image with the partitions of ``TOPIC``. Each broker is registered with the epoch 100 + its
    id."""
    topic = Topic(TOPIC, PARTITION.topic_id, states)
    registrations = {
        each: BrokerRegistration(each, 100 + each, bytes(16), fenced=each in fenced)
        for each in BROKERS
    }
    return MetadataImage(
        offset=offset,
        brokers=Brokers(registrations),
        topics=Topics.of([topic]),
        **more,
    )


@dataclass
class Core:
    """A fake ``RaftCore``."""

    local: ReplicaKey
    history: VoterHistory = field(default_factory=history)
    role: Role = Role.FOLLOWER
    epoch: int = 5
    vote: ReplicaKey | None = None
    promises_durable: bool = True
    high_watermark: int = 0
    epoch_start_offset: int | None = None  # while it leads
    last_epoch: int = 5
    end_offset: int = 0
    durable_end_offset: int = 0

    @property
    def status(self) -> Status:
        return Status(self.role, self.epoch, None)

    @property
    def log(self) -> Core:
        return self

    @property
    def voters(self) -> VoterSet:
        return self.history.latest

    @property
    def voter_history(self) -> VoterHistory:
        return self.history


class Node:
    """A fake ``SimNode``. The parts of its process are given or absent."""

    def __init__(self, node_id: int, machine: Machine) -> None:
        self.id = node_id
        self.host = machine.name
        self.machine = machine
        self.metadata_directory = "/data"
        self.metadata_log = METADATA_LOG
        self.alive = True
        self.failure = ""
        self.on_start: Callable[[SimNode], None] | None = None
        self.process = SimpleNamespace(incarnation=1)
        self.config = SimpleNamespace(
            broker_session_timeout_ms=6000,
            log_retention_check_interval_ms=300_000,
            log_dirs=("/data",),
        )
        self.node = SimpleNamespace(quorum=None, controller=None, broker=None)

    def replica_path(self, name: str) -> str:
        return f"/data/{name}"

    def kept_paths(self, name: str) -> list[str]:
        return [f"/data/{name}"]

    @property
    def running(self) -> SimpleNamespace | None:
        return self.node if self.alive else None

    @property
    def broker(self) -> Any:
        return None if self.running is None else self.running.broker

    @property
    def core(self) -> Core | None:
        return None if self.running is None or self.node.quorum is None else self.node.quorum.core

    @property
    def incarnation(self) -> str:
        return f"{self.host} #{self.process.incarnation}"

    def restart(self) -> None:
        self.process = SimpleNamespace(incarnation=self.process.incarnation + 1)


class Replicas(list[Replica]):
    """A fake ``ReplicaManager``."""

    def __init__(self, broker_epoch: int) -> None:
        super().__init__()
        self.broker_epoch = broker_epoch

    def get(self, partition: PartitionId) -> Replica | None:
        return self.by_id.get(partition)

    @property
    def hosted(self) -> Replicas:
        return self

    @property
    def by_id(self) -> dict[PartitionId, Replica]:
        return {replica.id: replica for replica in self}


class LawBench:
    """A fake ``SimCluster``: three controllers and three brokers on real simulated disks.

    Laws may report to ``report``. ``broken`` returns what was reported since its last call.
    """

    cluster_id = "cluster"

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.controllers = {
            each: Node(each, self.simulation.machine(f"c{each}")) for each in CONTROLLERS
        }
        self.brokers = {each: Node(each, self.simulation.machine(f"b{each}")) for each in BROKERS}
        self.established_controller: Node | None = None
        self._reports: list[str] = []
        self.scene = Scene(self.cluster, self.report)

    @property
    def cluster(self) -> SimCluster:
        return cast("SimCluster", self)

    @property
    def nodes(self) -> dict[int, Node]:
        return self.brokers | self.controllers

    def sim_node(self, node_id: int) -> SimNode:
        return cast("SimNode", self.nodes[node_id])

    def listen(self, law: Law) -> None:
        """Let the law hear the calls that it wants to hear."""
        self.simulation.fabric.wire.listen(law.hear, *law.hears)

    def report(self, what: str) -> None:
        self._reports.append(what)

    def broken(self, law: Law | None = None) -> list[str]:
        """Let the law look, if one is given. Returns everything that was reported since the last
        call."""
        if law is not None:
            self.scene.quorum = QuorumView(self.cluster)  # to which everything is new
            self.scene.quorum.look()
            law.look(self.cluster, self.report)
        reports, self._reports = self._reports, []
        return reports

    # ----------------------------------------------------------------------------- holding

    def core(self, node_id: int) -> Core:
        """The fake core of a controller. The first call makes it, on the disk of its number."""
        node = self.controllers[node_id].node
        if node.quorum is None:
            node.quorum = SimpleNamespace(core=Core(ReplicaKey(node_id, disk_id(node_id))))
        core = node.quorum.core
        assert isinstance(core, Core)
        return core

    def commit(self, image: MetadataImage, *node_ids: int) -> None:
        """Let these controllers (by default all) know this image. The first of them is the active
        one."""
        for node_id in node_ids or CONTROLLERS:
            self.controllers[node_id].node.controller = SimpleNamespace(image=image, active=True)
        self.established_controller = self.controllers[(node_ids or CONTROLLERS)[0]]

    def disk(self, node_id: int) -> Disk:
        """A new process's handle on the node's disk."""
        return self.simulation.process(self.nodes[node_id].host).world.disk

    def put(self, node_id: int, path: str, data: bytes) -> None:
        """Write a durable file to the node's disk."""
        disk = self.disk(node_id)
        directory = posixpath.dirname(path)
        disk.make_directory(directory)
        disk.replace_file_now(path, data)
        while directory != "/":
            directory = posixpath.dirname(directory)
            disk.sync_now(directory)

    def give_disk(self, node_id: int, number: int) -> None:
        """Replace the node's disk by the one of that number."""
        properties = MetaProperties(self.cluster_id, node_id, encode_uuid(disk_id(number)))
        self.put(node_id, f"/data/{META_PROPERTIES_FILE}", properties.encode())

    # ----------------------------------------------------------------------------- replicas

    def replica(
        self,
        broker_id: int,
        *batches: bytes | bytearray,
        state: PartitionState | None = None,
        high_watermark: int = 0,
        config: LogConfig | None = None,
        topic: str = TOPIC,
        partition: PartitionId = PARTITION,
    ) -> Replica:
        """A broker's replica of a partition, which replaces any that it has of it. Its log has
        these batches, all of them on disk, and its machine knows the state."""
        node = self.brokers[broker_id].node
        directory = f"/data/{topic}-{partition.partition}"
        disk = self.disk(broker_id)
        if disk.exists(directory):
            disk.remove_tree(directory)
        key = TopicPartition(topic, partition.partition)
        log = open_log(disk, directory, config or LogConfig(), HandClock(), key=key)
        for batch in batches:
            log.append_as_follower(batch)
        topic_id = encode_partition_metadata(partition.topic_id)
        disk.replace_file_now(f"{directory}/{PARTITION_METADATA_FILE}", topic_id)
        log.sync_now()
        disk.sync_now("/")
        position = LogPosition(log.start_offset, log.end_offset, log.durable_offset, 0)
        machine = PartitionMachine(
            broker_id,
            log=position,
            high_watermark=high_watermark,
            lag_max_ms=30_000,
        )
        if state is not None:
            machine.updated(state, 1, position, 0.0)
        # Laws look at neither the configuration, nor the directory, nor the traffic.
        unseen: Any = None
        replica = Replica(partition, topic, unseen, machine, unseen, log, unseen)
        if node.broker is None:
            node.broker = SimpleNamespace(
                replicas=Replicas(100 + broker_id), deposed=False, image=MetadataImage()
            )
        others = [each for each in node.broker.replicas if each.id != partition]
        node.broker.replicas[:] = [*others, replica]
        return replica

    def fetched(self, leading: Replica, broker_id: int, offset: int) -> None:
        """A leader counts a fetch from this offset."""
        leading.machine.fetched(broker_id, offset, BrokerStatus(100 + broker_id, True), 0.0)
