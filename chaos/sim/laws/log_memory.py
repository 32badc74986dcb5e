"""Compares what a log remembers beside its records with a simple reading of its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import START, Place, batches_from, sound_batches_from
from chaos.sim.cluster.view import online
from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.committed_records import CommittedRecordsStay
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from stele.ids import PartitionId
from stele.wire.batch import BatchHeader
from storage.log import PartitionLog

_MAX_SEQUENCE = 0x7FFFFFFF


@dataclass(slots=True)
class _Twin:
    """What the batches of one replica's log say, read from the first batch that retention has
    left."""

    log: PartitionLog  # what it reads; a replica that is removed and added again has another log
    generation: int  # the log's truncation generation
    is_whole: bool  # it has read the log from offset 0 on without a gap
    may_begin_anywhere: bool  # a producer's first sequence need not be 0: see ``remade_topics``
    place: Place = START  # what to read next
    end_offset: int = 0
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)  # (epoch, last sequence)
    epochs: list[tuple[int, int]] = field(default_factory=list)  # (epoch, first offset)

    def take(self, header: BatchHeader) -> str | None:
        """Read one more batch. Returns what is wrong with it."""
        wrong = None
        if header.base_offset > self.end_offset:
            # Retention may have deleted what lay between before it was read.
            if self.log.start_offset < header.base_offset:
                wrong = f"offset {self.end_offset} is missing before {header.base_offset}"
            self.is_whole = False
            self.producers.clear()
            self.epochs.clear()
        if not self.epochs or header.leader_epoch != self.epochs[-1][0]:
            self.epochs.append((header.leader_epoch, header.base_offset))
        if header.producer_id >= 0 and header.base_sequence >= 0:
            known = self.producers.get(header.producer_id)
            epoch, last = (header.producer_epoch, -1) if known is None else known
            expected = (last + 1) & _MAX_SEQUENCE if epoch == header.producer_epoch else 0
            is_free = known is None and (self.may_begin_anywhere or not self.is_whole)
            if (header.base_sequence != expected and not is_free) or header.producer_epoch < epoch:
                wrong = (
                    f"producer {header.producer_id} has sequence {header.base_sequence} (epoch "
                    f"{header.producer_epoch}) at {header.base_offset} after {last} ({epoch})"
                )
            self.producers[header.producer_id] = header.producer_epoch, header.last_sequence
        elif header.producer_id >= 0 and header.is_control:
            # A marker has no sequence. One of a new epoch begins the sequences anew.
            known = self.producers.get(header.producer_id)
            if known is None or known[0] != header.producer_epoch:
                self.producers[header.producer_id] = header.producer_epoch, -1
        self.end_offset = header.next_offset
        return wrong

    def epochs_from(self, start_offset: int) -> list[tuple[int, int]]:
        """The epochs that a log which begins at ``start_offset`` knows."""
        held = sum(start <= start_offset for _, start in self.epochs)
        if held == 0:
            return self.epochs
        return [(self.epochs[held - 1][0], start_offset), *self.epochs[held:]]

    def knows(self, producers: dict[int, tuple[int, int]]) -> bool:
        """Whether the batches say the same of these producers. A log may still know a producer
        whose batches are gone."""
        if self.is_whole:
            return producers == self.producers
        return all(producers.get(each) == last for each, last in self.producers.items())


class LogsRememberWhatTheyHold(Law):
    """In every log that is not compacted, each producer's sequences follow each other. The log's
    state of producers and leader epochs is that of its batches, at every moment and right after a
    truncation."""

    name = "logs remember what they hold"
    cadence = Cadence.SELDOM

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
        self.remade_topics: set[str] = set()
        """Topics whose logs may begin with any sequence of a producer: its first batches went to an
        earlier topic of the same name."""
        self.rolled = 0  # looks at logs of several segments
        self._twins: dict[tuple[str, PartitionId], _Twin] = {}
        self._cut: list[tuple[str, str]] = []  # (machine, partition) just truncated
        for node in cluster.brokers.values():
            self._watch(node)

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.metadata, scene.law(CommittedRecordsStay), scene.report)

    def _watch(self, node: SimNode) -> None:
        simulation = self._cluster.simulation

        def cut(path: str, size: int) -> None:
            partition, file = path.split("/")[-2:]
            if not file.endswith(".log") or partition.startswith("__"):
                return
            self._check_cut(node, partition, Place(file, size))
            simulation.scheduler.at(0.0, self._check_after_cut, node, partition)

        simulation.machine(node.host).disk.on_cut = cut

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node, replica in online(cluster):
            if not replica.log.config.compact:
                self._compare(node, replica, report)

    # ---------------------------------------------------------------------------- truncation

    def _replicas(self, node: SimNode, partition: str) -> Iterator[Replica]:
        return (
            replica
            for each, replica in online(self._cluster)
            if each is node and repr(replica) == partition and not replica.log.config.compact
        )

    def _check_cut(self, node: SimNode, partition: str, place: Place) -> None:
        """Check that nothing committed is cut. (Torn tails are cut before the replica is online.)

        Batches behind the log's end are left out. A write that found too little room has left them:
        the log has told nobody of them and removes them. The log's end itself falls only after the
        cut.
        """
        for replica in self._replicas(node, partition):
            if _was_unclean(self._metadata, replica):
                continue
            for _, header in batches_from(node, partition, place):
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
            if replica.machine.is_leader:
                continue
            log = replica.log
            if log.start_offset == log.end_offset:
                continue  # no record is left to compare the epochs with
            entries, told = log.epochs.entries, twin.epochs_from(log.start_offset)
            if entries != told and twin.end_offset == log.end_offset:
                self._report(
                    f"{replica!r} on broker {node.id}, just cut to {twin.end_offset}: its epochs "
                    f"say {entries}, its batches {told}"
                )

    # ---------------------------------------------------------------------------- comparison

    def _compare(self, node: SimNode, replica: Replica, report: Report) -> _Twin:
        log = replica.log
        key = node.incarnation, replica.id
        twin = self._twins.get(key)
        generation = log.truncation_generation
        if twin is None or twin.log is not log or twin.generation != generation:
            is_whole = log.start_offset == 0 and log.segments.bases[0] == 0
            anywhere = replica.topic in self.remade_topics
            twin = self._twins[key] = _Twin(log, generation, is_whole, anywhere)
        if twin.end_offset < log.end_offset:
            self._read_on(node, replica, twin, report)
        if twin.end_offset == log.end_offset:
            self._compare_memory(node, replica, twin, report)
        return twin

    def _read_on(self, node: SimNode, replica: Replica, twin: _Twin, report: Report) -> None:
        for at, header in sound_batches_from(node, repr(replica), twin.place):
            if header.next_offset > twin.log.end_offset:
                break
            wrong = twin.take(header)
            if wrong:
                report(f"{replica!r} on broker {node.id}: {wrong}")
            twin.place = at.behind(header)

    def _compare_memory(self, node: SimNode, replica: Replica, twin: _Twin, report: Report) -> None:
        log = replica.log
        self.looked += twin.place != START
        self.rolled += len(log.segments.bases) > 1
        known = {each.producer_id: (each.epoch, each.last_sequence) for each in log.producers}
        if not twin.knows(known):
            report(
                f"{replica!r} on broker {node.id} ends at {log.end_offset}: it knows the producers "
                f"{known}, its batches say {twin.producers}"
            )
        entries = log.epochs.entries
        if entries and entries[-1][1] == log.end_offset:
            entries = entries[:-1]  # a leader's epoch in which it has written nothing yet
        told = twin.epochs_from(log.start_offset)
        if entries != told and log.start_offset < log.end_offset:
            report(
                f"{replica!r} on broker {node.id} ends at {log.end_offset}: its epochs say "
                f"{log.epochs.entries}, its batches {told}"
            )


def _was_unclean(metadata: CommittedMetadata, replica: Replica) -> bool:
    image = metadata.newest
    state = None if image is None else image.partition(*replica.id)
    known = 0 if state is None else state.unclean_elections
    return bool(known or replica.machine.state.unclean_elections)
