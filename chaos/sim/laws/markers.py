"""Compares what logs know of transactions with what their coordinators have decided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

from broker.coordinator.transaction.machine import TransactionMachine
from broker.coordinator.transaction.records import RecordedTransaction, decode_value
from broker.coordinator.transaction.types import TransactionState
from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import records_at, sound_batches_from
from chaos.sim.cluster.view import online
from chaos.sim.laws.coordinator_logs import values_of
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from metadata.image import MetadataImage
from metadata.internal_topics import TRANSACTION_TOPIC
from metadata.partitions import PartitionState
from stele.ids import TopicPartition

_OPEN = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
)
_EPOCH_BUMP_VERSION = 2  # KIP-890: the epoch of a marker is that of no record before it


class _Hosted(NamedTuple):
    node: SimNode
    replica: Replica
    state: PartitionState
    """By the newest committed metadata."""

    @property
    def leads(self) -> bool:
        machine = self.replica.machine
        return (
            machine.is_leader
            and self.node.id == self.state.leader
            and machine.leader_epoch == self.state.leader_epoch
        )


class MarkersFollowDecisions(Law):
    """A marker is in no log before its decision is committed, because it cannot be taken back. And
    as long as the leader of a partition has an open transaction, its coordinator has it open, too:
    it is complete only when all of its markers are committed."""

    name = "markers follow decisions"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.topics: set[str] = set()
        """Topics with transactions."""

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        if not self.topics:
            return
        image = self._scene.image
        if image is None:
            return
        hosted = list(self._hosted(cluster, image))
        deciding = [each for each in hosted if each.replica.topic == TRANSACTION_TOPIC]
        written = [each for each in hosted if each.replica.topic in self.topics]
        for each in deciding:
            if each.leads:
                for value in _undecided(each, deciding):
                    self._compare_undecided(value, written, report)
        values = _values(image, deciding)
        if values is not None:
            for each in written:
                if each.leads:
                    self._compare_open(each, values, report)

    def _hosted(self, cluster: SimCluster, image: MetadataImage) -> Iterator[_Hosted]:
        for node, replica in online(cluster):
            if replica.topic in self.topics or replica.topic == TRANSACTION_TOPIC:
                state = image.partition(*replica.id)
                if state is not None:
                    yield _Hosted(node, replica, state)

    def _compare_undecided(
        self, value: RecordedTransaction, written: list[_Hosted], report: Report
    ) -> None:
        self.looked += 1
        for node, replica, _ in written:
            entry = replica.log.producers.get(value.producer_id)
            if entry is not None and entry.epoch >= value.producer_epoch:
                report(
                    f"{replica!r} on broker {node.id} has the marker of producer "
                    f"{value.producer_id} in epoch {value.producer_epoch}, whose "
                    f"{value.state.label} is not committed"
                )

    def _compare_open(
        self, hosted: _Hosted, values: dict[int, RecordedTransaction], report: Report
    ) -> None:
        node, replica, _ = hosted
        partition = TopicPartition(replica.topic, replica.id.partition)
        for entry in replica.log.producers:
            if not 0 <= entry.transaction_first_offset < replica.machine.high_watermark:
                continue
            self.looked += 1
            value = values.get(entry.producer_id)
            if value is None or value.state not in _OPEN or partition not in value.partitions:
                report(
                    f"{replica!r} on broker {node.id} has an open transaction of producer "
                    f"{entry.producer_id} in epoch {entry.epoch} from "
                    f"{entry.transaction_first_offset} on, and its coordinator knows {value}"
                )


def _undecided(leader: _Hosted, deciding: list[_Hosted]) -> Iterator[RecordedTransaction]:
    """The decisions that cannot be committed yet, because a member of the ISR lacks them. Only
    those whose markers can be told from former ones."""
    replica = leader.replica
    held = [
        other.replica.log.end_offset
        for other in deciding
        if other.replica.id == replica.id and other.node.id in leader.state.isr
    ]
    start_offset = min(held)
    if start_offset >= replica.log.end_offset:
        return
    for at, header in sound_batches_from(leader.node, repr(replica)):
        if header.next_offset <= start_offset or header.is_control:
            continue
        for offset, _, _, data, _ in records_at(leader.node, repr(replica), at):
            if data is None or offset < start_offset:
                continue
            value = decode_value(bytes(data))
            if value.state.is_prepared and value.client_version >= _EPOCH_BUMP_VERSION:
                yield value


def _values(image: MetadataImage, deciding: list[_Hosted]) -> dict[int, RecordedTransaction] | None:
    """What the coordinators know, by producer id. None: not all of them work now."""
    topic = image.topic(TRANSACTION_TOPIC)
    machines: dict[int, TransactionMachine] = {
        number: machine
        for each in deciding
        if each.leads and each.node.broker is not None
        for number, epoch, machine in each.node.broker.transactions.each_active()
        if (number, epoch) == (each.replica.id.partition, each.state.leader_epoch)
    }
    if topic is None or len(machines) < len(topic.partitions):
        return None
    return {value.producer_id: value for each in machines.values() for value in values_of(each)}
