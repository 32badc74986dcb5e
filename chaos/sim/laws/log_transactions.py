"""Compares what logs know of transactions with a simple reading of their bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Self

from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import (
    START,
    Place,
    aborted_by_index,
    records_at,
    sound_batches_from,
)
from chaos.sim.cluster.view import online
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report
from stele.ids import PartitionId
from stele.wire.batch import BatchHeader
from stele.wire.control_records import EndMarker, decode_end_marker
from storage.log import PartitionLog


class _Ended(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int
    commit: bool


@dataclass(slots=True)
class _Twin:
    """The transactions of one replica's log by its batches."""

    log: PartitionLog
    generation: int  # the log's truncation generation
    place: Place = START  # what to read next
    end_offset: int = 0
    open: dict[int, int] = field(default_factory=dict)  # the first offset, by producer id
    ended: list[_Ended] = field(default_factory=list)

    def take(self, header: BatchHeader, marker: EndMarker | None) -> None:
        if marker is not None:
            first = self.open.pop(header.producer_id, None)
            if first is not None:
                self.ended.append(
                    _Ended(header.producer_id, first, header.base_offset, marker.commit)
                )
        elif header.is_transactional and not header.is_control:
            self.open.setdefault(header.producer_id, header.base_offset)
        self.end_offset = header.next_offset

    def stable_end(self, high_watermark: int) -> int:
        """An ended transaction is undecided until its marker is committed."""
        undecided = (
            each.first_offset for each in self.ended if each.marker_offset >= high_watermark
        )
        return min(high_watermark, *self.open.values(), *undecided, high_watermark)


class LogsKnowTheirTransactions(Law):
    """The last stable offset of every replica is the first offset of its oldest transaction that is
    not decided below its high watermark, or else the high watermark. Its transaction indexes name
    exactly the transactions that an abort marker has ended. Producers have the open transactions
    that the batches say."""

    name = "logs know their transactions"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self) -> None:
        self.topics: set[str] = set()
        """Topics with transactions. Their logs are whole from offset 0 on, and not compacted."""
        self._twins: dict[tuple[str, PartitionId], _Twin] = {}

    @classmethod
    def of(cls, scene: object) -> Self:
        return cls()

    def look(self, cluster: SimCluster, report: Report) -> None:
        if not self.topics:
            return
        for node, replica in online(cluster):
            if replica.topic in self.topics:
                self._compare(node, replica, report)

    def _compare(self, node: SimNode, replica: Replica, report: Report) -> None:
        log, key = replica.log, (node.incarnation, replica.id)
        twin = self._twins.get(key)
        if twin is None or twin.log is not log or twin.generation != log.truncation_generation:
            twin = self._twins[key] = _Twin(log, log.truncation_generation)
        if twin.end_offset < log.end_offset:
            self._read_on(node, replica, twin)
        if twin.end_offset != log.end_offset or log.start_offset > 0:
            return
        self.looked += bool(twin.ended)
        what = f"{replica!r} on broker {node.id}, which ends at {log.end_offset}"
        machine = replica.machine
        stable_end = twin.stable_end(machine.high_watermark)
        if machine.last_stable_offset != stable_end:
            report(
                f"{what} and is committed to {machine.high_watermark}, is stable up to "
                f"{machine.last_stable_offset}, by its batches up to {stable_end}"
            )
        indexed = {
            (e.producer_id, e.first_offset, e.last_offset)
            for e in aborted_by_index(node, repr(replica))
        }
        aborted = {
            (e.producer_id, e.first_offset, e.marker_offset) for e in twin.ended if not e.commit
        }
        if indexed != aborted:
            report(
                f"{what}: the indexes lack {sorted(aborted - indexed)} and should not have "
                f"{sorted(indexed - aborted)}"
            )

    def _read_on(self, node: SimNode, replica: Replica, twin: _Twin) -> None:
        partition = repr(replica)
        for at, header in sound_batches_from(node, partition, twin.place):
            if header.next_offset > twin.log.end_offset:
                break
            marker = None
            if header.is_control:
                marker = decode_end_marker(records_at(node, partition, at)[0])
            twin.take(header, marker)
            twin.place = at.behind(header)
