"""Records that retention has deleted, and whether it was allowed to."""

from __future__ import annotations

from typing import NamedTuple, Self

from broker.replication.replica import Replica, ReplicaState
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import online
from chaos.sim.laws.committed_records import CommittedRecordsStay
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from metadata.internal_topics import SHARE_TOPIC
from stele.ids import PartitionId
from storage.config import NO_LIMIT
from storage.log import PartitionLog

_SHORTENED = ("extra-", SHARE_TOPIC)
"""Topics whose records administrators, or brokers that need them no more, delete at any age."""


class _Seen(NamedTuple):
    """What a look saw of a replica."""

    log: PartitionLog
    start: int
    first_base: int
    last_base: int
    truncation_generation: int


class RetentionTakesNoMore(Law):
    """Retention deletes only committed batches. Each is older than ``retention.ms`` by the clock of
    some broker, or at least ``retention.bytes`` remain behind it.

    Retention counts all bytes of a log, also those that are not committed, as in Kafka. If the log
    was truncated since the last look, nobody knows any more how many there were.

    The law also counts segments that begin and that are deleted.
    """

    name = "retention takes no more than it may"
    cadence = Cadence.EVERY_LOOK
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene, committed: CommittedRecordsStay) -> None:
        self.rolled = 0  # segments that were begun behind another one
        self.deleted = 0
        self.starts: dict[PartitionId, int] = {}
        """The highest start that any replica was seen with."""
        self.named: dict[tuple[str, int], int] = {}
        """The same by topic name and number, for topics that are never deleted and made anew."""
        self._scene = scene
        self._committed = committed
        self._latest_ms = 0  # the latest time that any broker's wall clock was seen to show
        self._seen: dict[Replica, _Seen] = {}
        self._cut: set[PartitionId] = set()  # truncated since the last look

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene, scene.law(CommittedRecordsStay))

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.brokers.values():
            now_ms = node.machine.clock.time_ms()
            if now_ms > self._latest_ms:
                self._latest_ms = now_ms
        self._cut.clear()
        shortened: dict[PartitionId, int] = {}  # the highest start before this look
        largest: dict[
            PartitionId, int
        ] = {}  # of the replicas of a partition: bytes behind the start
        for _, replica in self._scene.hosted:
            if replica.state is not ReplicaState.ONLINE:
                continue
            log = replica.log
            start, bases = log.start_offset, log.segments.bases
            now = _Seen(log, start, bases[0], bases[-1], log.truncation_generation)
            known = self._seen.get(replica)
            if now == known:
                continue
            self._seen[replica] = now
            if known is not None and known.log is log:
                self.rolled += sum(base > known.last_base for base in bases)
                self.deleted += bases[0] > known.first_base
                if now.truncation_generation != known.truncation_generation:
                    self._cut.add(replica.id)
            before = self.starts.get(replica.id, 0)
            if start > before:
                self.starts[replica.id] = start
                self.named[replica.topic, replica.id.partition] = start
                shortened.setdefault(replica.id, before)
        for _, replica in online(cluster) if shortened else ():
            if replica.id in shortened:
                left_bytes = _bytes_from(replica.log, self.starts[replica.id])
                largest[replica.id] = max(largest.get(replica.id, 0), left_bytes)
        for _, replica in online(cluster) if shortened else ():
            if replica.id in shortened and replica.log.start_offset == self.starts[replica.id]:
                # Once for each partition, with the bytes of the replica that holds most: followers
                # hold less than the leader, which decided what goes.
                self._judge(replica, shortened.pop(replica.id), largest[replica.id], report)

    def _judge(self, replica: Replica, before: int, left_bytes: int, report: Report) -> None:
        self.looked += 1
        start = replica.log.start_offset
        committed = max(
            self._scene.high_watermarks.get(replica.id, 0), replica.machine.high_watermark
        )
        if start > committed:
            report(f"{replica!r} begins at {start}, and only {committed} is committed")
        if replica.topic.startswith(_SHORTENED):
            return
        self._judge_batches(replica, before, left_bytes, report)

    def _judge_batches(
        self, replica: Replica, before: int, left_bytes: int, report: Report
    ) -> None:
        """Judges the deleted batches, newest first. A batch that went by its age counts among the
        bytes left behind older batches, since retention looks at the oldest segments first."""
        start, config = replica.log.start_offset, replica.log.config
        young_ms = self._latest_ms - config.retention_ms
        batches = self._committed.batches_of(replica.id)
        for base in sorted((base for base in batches if before <= base < start), reverse=True):
            by_size = config.delete_old and config.retention_bytes != NO_LIMIT
            if by_size and (config.retention_bytes <= left_bytes or replica.id in self._cut):
                return
            if not config.delete_old or config.retention_ms == NO_LIMIT:
                report(f"{replica!r} begins at {start}, and nothing may go by its age")
                return
            batch = batches[base]
            if batch.newest_ms >= young_ms:
                report(
                    f"{replica!r} begins at {start}: offset {base} of {batch.newest_ms} ms is "
                    f"gone, and the latest clock shows {self._latest_ms} ms"
                )
                return
            left_bytes += batch.size_bytes


def _bytes_from(log: PartitionLog, start_offset: int) -> int:
    """The size of the segments that a log beginning at ``start_offset`` needs."""
    return sum(each.size for each in log.segments if each.end_offset > start_offset)
