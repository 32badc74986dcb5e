"""Laws about what a log remembers beside its records, held against a dumb reading of its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.replica import Replica
from broker.types import PartitionId
from chaos.sim.laws import (
    CommittedMetadata,
    CommittedRecordsStay,
    Report,
    bytes_before,
    log_bytes,
    online,
    process_of,
)
from stele.wire.batch import BatchHeader, batches
from storage.log import PartitionLog

if TYPE_CHECKING:
    from chaos.sim.cluster import SimCluster, SimNode

_MAX_SEQUENCE = 0x7FFFFFFF


@dataclass(slots=True)
class _Twin:
    """What the batches of one replica's log say, read from its beginning."""

    log: PartitionLog  # it was read from: a replica removed and added again has another
    generation: int  # of its truncations
    position: int = 0  # in the file
    end_offset: int = 0
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)  # (epoch, last sequence)
    epochs: list[tuple[int, int]] = field(default_factory=list)  # (epoch, first offset)

    def take(self, header: BatchHeader) -> str | None:
        """Read one more batch; what is wrong with it."""
        wrong = None
        if not self.epochs or header.leader_epoch != self.epochs[-1][0]:
            self.epochs.append((header.leader_epoch, header.base_offset))
        if header.producer_id >= 0 and header.base_sequence >= 0:
            epoch, last = self.producers.get(header.producer_id, (header.producer_epoch, -1))
            expected = (last + 1) & _MAX_SEQUENCE if epoch == header.producer_epoch else 0
            if header.base_sequence != expected or header.producer_epoch < epoch:
                wrong = (
                    f"producer {header.producer_id} has sequence {header.base_sequence} (epoch "
                    f"{header.producer_epoch}) at {header.base_offset} after {last} ({epoch})"
                )
            self.producers[header.producer_id] = header.producer_epoch, header.last_sequence
        self.end_offset = header.next_offset
        return wrong


class LogsRememberWhatTheyHold:
    """Producers' sequences follow each other in every log; and what it knows of producers and
    leader epochs is what its batches say, at every moment and right after a truncation."""

    name = "logs remember what they hold"

    def __init__(
        self,
        cluster: SimCluster,
        metadata: CommittedMetadata,
        committed: CommittedRecordsStay,
        report: Report,
    ) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._committed = committed
        self._report = report
        self._twins: dict[tuple[str, PartitionId], _Twin] = {}
        self._cut: list[tuple[str, str]] = []  # (machine, partition) just truncated
        for node in cluster.brokers.values():
            self._watch(node)

    def _watch(self, node: SimNode) -> None:
        simulation = self._cluster.simulation

        def cut(path: str, size: int) -> None:
            partition, file = path.split("/")[-2:]
            if not file.endswith(".log") or partition.startswith("__"):
                return
            self._check_cut(node, partition, bytes_before(self._cluster, node, path) + size)
            simulation.scheduler.at(0.0, self._check_after_cut, node, partition)

        simulation.machine(node.host).disk.on_cut = cut

    def check(self, cluster: SimCluster, report: Report) -> None:
        for node, replica in online(cluster):
            self._compare(node, replica, report)

    # ---------------------------------------------------------------------------- truncation

    def _replicas(self, node: SimNode, partition: str) -> Iterator[Replica]:
        return (
            replica
            for each, replica in online(self._cluster)
            if each is node and repr(replica) == partition
        )

    def _check_cut(self, node: SimNode, partition: str, size: int) -> None:
        """What is cut was not committed. (Torn tails are cut before the replica is online.)

        What stands behind the log's end a write has left that found no room for all of it, maybe
        with whole batches in it: the log does not have them, has told nobody of them, and takes
        them back. The end falls only after a cut.
        """
        for replica in self._replicas(node, partition):
            if _was_unclean(self._metadata, replica):
                continue
            data = bytes(log_bytes(self._cluster, node, partition)[size:])
            for _, header in batches(data):
                if header.base_offset >= replica.log.end_offset:
                    break
                if self._committed.is_committed(replica.id, header):
                    self._report(
                        f"{replica!r} on broker {node.id} cuts off offset {header.base_offset}, "
                        "which is committed"
                    )
                    return

    def _check_after_cut(self, node: SimNode, partition: str) -> None:
        for replica in self._replicas(node, partition):
            twin = self._compare(node, replica, self._report)
            if twin is None or replica.machine.is_leader:
                continue
            entries = replica.log.epochs.entries
            if entries != twin.epochs and twin.end_offset == replica.log.end_offset:
                self._report(
                    f"{replica!r} on broker {node.id}, just cut to {twin.end_offset}: its epochs "
                    f"say {entries}, its batches {twin.epochs}"
                )

    # ---------------------------------------------------------------------------- comparison

    def _compare(self, node: SimNode, replica: Replica, report: Report) -> _Twin | None:
        log = replica.log
        if log.start_offset > 0 or log.segment_bases != [0]:
            return None
        key = process_of(node), replica.id
        twin = self._twins.get(key)
        generation = log.truncation_generation
        if twin is None or twin.log is not log or twin.generation != generation:
            twin = self._twins[key] = _Twin(log, generation)
        if twin.end_offset < log.end_offset:
            self._read_on(node, replica, twin, report)
        if twin.end_offset == log.end_offset:
            self._compare_memory(node, replica, twin, report)
        return twin

    def _read_on(self, node: SimNode, replica: Replica, twin: _Twin, report: Report) -> None:
        data = bytes(log_bytes(self._cluster, node, repr(replica))[twin.position :])
        read = 0
        for at, header in batches(data):
            if header.next_offset > twin.log.end_offset:
                break
            wrong = twin.take(header)
            if wrong:
                report(f"{replica!r} on broker {node.id}: {wrong}")
            read = at + header.size_bytes
        twin.position += read

    def _compare_memory(self, node: SimNode, replica: Replica, twin: _Twin, report: Report) -> None:
        log = replica.log
        known = {each.producer_id: (each.epoch, each.last_sequence) for each in log.producers}
        if known != twin.producers:
            report(
                f"{replica!r} on broker {node.id} ends at {log.end_offset}: it knows the producers "
                f"{known}, its batches say {twin.producers}"
            )
        entries = log.epochs.entries
        if entries and entries[-1][1] == log.end_offset:
            entries = entries[:-1]  # of a leader that has written nothing yet
        if entries != twin.epochs:
            report(
                f"{replica!r} on broker {node.id} ends at {log.end_offset}: its epochs say "
                f"{log.epochs.entries}, its batches {twin.epochs}"
            )


class MembersHaveEverything:
    """Every member of an ISR, and every eligible leader, has on disk whatever was committed.

    ``highest`` are the high watermarks ever seen, by partition.
    """

    name = "members have everything"

    def __init__(self, metadata: CommittedMetadata, highest: dict[PartitionId, int]) -> None:
        self._metadata = metadata
        self._highest = highest

    def check(self, cluster: SimCluster, report: Report) -> None:
        image = self._metadata.newest
        if image is None:
            return
        replicas: dict[PartitionId, list[tuple[SimNode, Replica]]] = {}
        for node, replica in online(cluster):
            replicas.setdefault(replica.id, []).append((node, replica))
        for topic, number, state in image.sorted_partitions():
            partition = PartitionId(topic.topic_id, number)
            running = replicas.get(partition, [])
            if state.unclean_elections or any(
                replica.machine.state.partition_epoch > state.partition_epoch
                for _, replica in running
            ):
                continue  # or a controller told it what none was seen with
            committed = self._highest.get(partition, 0)
            for node, replica in running:
                behind = replica.log.durable_offset < committed
                if behind and (node.id in state.isr or node.id in state.elr):
                    report(
                        f"{replica!r}: broker {node.id} is in the ISR {state.isr} or eligible "
                        f"{state.elr}, has {replica.log.durable_offset} on disk, and {committed} "
                        "is committed"
                    )


class FollowersKnowTheEpoch:
    """A leader counts the position of a follower only if that follows it in the present epoch."""

    name = "followers know the epoch"

    def check(self, cluster: SimCluster, report: Report) -> None:
        replicas = {(node.id, replica.id): (node, replica) for node, replica in online(cluster)}
        for _, leading in list(replicas.values()):
            machine = leading.machine
            if not machine.is_leader:
                continue
            for broker in machine.state.replicas:
                progress = machine.progress_of(broker)
                found = replicas.get((broker, leading.id))
                if progress is None or progress.end_offset < 0 or found is None:
                    continue
                node, replica = found
                assert node.node is not None
                assert node.node.broker is not None
                if progress.broker_epoch != node.node.broker.replicas._broker_epoch:
                    continue  # of an earlier process
                if replica.machine.leader_epoch < machine.leader_epoch:
                    report(
                        f"{leading!r}: broker {machine.broker_id} leads epoch "
                        f"{machine.leader_epoch} and counts on broker {broker}, which knows of "
                        f"{replica.machine.leader_epoch}"
                    )


def _was_unclean(metadata: CommittedMetadata, replica: Replica) -> bool:
    image = metadata.newest
    state = None if image is None else image.partition(*replica.id)
    known = 0 if state is None else state.unclean_elections
    return bool(known or replica.machine.state.unclean_elections)
