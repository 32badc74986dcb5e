"""What compaction leaves of logs, on the disks of all replicas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import whole_batches
from chaos.sim.cluster.view import online
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.disk import Inode
from stele.ids import PartitionId
from stele.wire.batch import check_crc, decode
from stele.wire.control_records import decode_end_marker
from storage.compaction.rewriting import HAS_DELETE_HORIZON
from storage.log import PartitionLog

_SEEN_LATE_MS: Final = 1000
"""A record is seen at most so long after it was committed, and a clock so long after it was set."""


class _Written(NamedTuple):
    """A record as it was when a replica was first seen to have committed it."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    epoch: int


class _Stored(NamedTuple):
    """A record on a disk."""

    offset: int
    record: _Written
    horizon_ms: int | None  # when its batch's tombstones may go, as a cleaner has noted
    producer_id: int = -1  # of its transaction; -1: it is in none


class _End(NamedTuple):
    """A marker on a disk."""

    offset: int
    producer_id: int
    is_commit: bool


@dataclass(slots=True)
class _Segment:
    """What was read of one file."""

    inode: Inode
    read_bytes: int = 0
    records: list[_Stored] = field(default_factory=list)
    is_damaged: bool = False


@dataclass(slots=True)
class _History:
    """What was ever committed in one partition."""

    written: dict[int, _Written] = field(default_factory=dict)
    latest: dict[bytes, int] = field(default_factory=dict)  # the last offset of each key
    # The least time that any broker's clock has shown since a tombstone was seen first.
    tombstones: dict[int, int] = field(default_factory=dict)
    # By producer id: keys and offsets in transactions whose marker was not seen yet. They are
    # values of their keys once a transaction commits. Aborted records are no values, and compaction
    # drops them.
    pending: dict[int, list[tuple[bytes, int]]] = field(default_factory=dict)
    ends: dict[int, _End] = field(default_factory=dict)  # by offset

    def take(self, stored: _Stored) -> None:
        """A record with a key was seen for the first time."""
        key = stored.record.key
        assert key is not None
        if stored.producer_id < 0:
            self._is_value(key, stored.offset)
            return
        later = (each for each in self.ends.values() if each.producer_id == stored.producer_id)
        end = min((each for each in later if each.offset > stored.offset), default=None)
        if end is None:
            self.pending.setdefault(stored.producer_id, []).append((key, stored.offset))
        elif end.is_commit:
            self._is_value(key, stored.offset)

    def _is_value(self, key: bytes, offset: int) -> None:
        self.latest[key] = max(offset, self.latest.get(key, -1))

    def end(self, end: _End) -> None:
        """A marker was seen."""
        if end.offset in self.ends:
            return
        self.ends[end.offset] = end
        pending = self.pending.pop(end.producer_id, [])
        self.pending[end.producer_id] = [each for each in pending if each[1] > end.offset]
        for key, offset in pending:
            if offset < end.offset and end.is_commit:
                self._is_value(key, offset)


@dataclass(slots=True)
class _View:
    """One replica's log as it was at the last look."""

    log: PartitionLog
    generation: int  # the log's truncation generation
    committed: int = -1
    clean_end: int = 0
    segments: list[_Segment] = field(default_factory=list)


class CompactedLogsKeepTheLastValues(Law):
    """A compacted log has the last committed record of every key, at its offset, with its value,
    timestamp and leader epoch. Its offsets rise. It has no record that was never committed. Below
    the clean end no key comes twice. A record of a transaction counts from its commit on. A
    tombstone stays for ``delete.retention.ms`` after it was written, by the clocks of all brokers.
    The greatest timestamp in a batch's header is that of its records.
    Where it is gone, so are all older records of its key.

    Replicas are compacted at different times, and so differ in older records only.
    """

    name = "compacted logs keep the last values"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self.rounds = 0  # compacted segments that took the place of others
        self.dropped = 0  # how often a tombstone was seen to be gone
        self._scene = scene
        self._histories: dict[PartitionId, _History] = {}
        self._views: dict[tuple[int, PartitionId], _View] = {}
        self._least_ms = self._latest_ms = 0

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        self._look_at_clocks(cluster)
        for node, replica in online(cluster):
            if replica.log.config.compact:
                self._look_at(node, replica, report)

    def _look_at_clocks(self, cluster: SimCluster) -> None:
        times = [node.machine.clock.time_ms() for node in cluster.brokers.values()]
        self._latest_ms = max(self._latest_ms, *times)
        least_ms = min(times)
        if least_ms < self._least_ms:  # a clock was set back
            for history in self._histories.values():
                for offset, since_ms in history.tombstones.items():
                    history.tombstones[offset] = min(since_ms, least_ms - _SEEN_LATE_MS)
        self._least_ms = least_ms

    # ------------------------------------------------------------------------- reading

    def _look_at(self, node: SimNode, replica: Replica, report: Report) -> None:
        log = replica.log
        view = self._views.get((node.id, replica.id))
        generation = log.truncation_generation
        if view is None or view.log is not log or view.generation != generation:
            view = self._views[node.id, replica.id] = _View(log, generation)
        committed = min(replica.machine.high_watermark, log.end_offset)
        clean_end = replica.directory.clean_end(log)
        files = node.machine.disk.files(node.replica_path(repr(replica)), ".log")
        is_same = [inode for _, inode in files] == [each.inode for each in view.segments]
        if is_same and (committed, clean_end) == (view.committed, view.clean_end):
            return
        history = self._histories.setdefault(replica.id, _History())
        retention_ms = log.config.delete_retention_ms
        known = {id(each.inode): each for each in view.segments}
        self.rounds += sum(id(inode) not in known for _, inode in files[:-1]) if known else 0
        view.segments = [known.get(id(inode)) or _Segment(inode) for _, inode in files]
        view.committed, view.clean_end = committed, clean_end
        where = f"{replica!r} on broker {node.id}"
        for segment in view.segments:
            for found in self._read_on(where, segment, committed, report):
                if isinstance(found, _End):
                    history.end(found)
                else:
                    self._compare(where, found, history, retention_ms, report)
        if not any(each.is_damaged for each in view.segments):
            self._judge(where, view, history, report)

    def _read_on(
        self, where: str, segment: _Segment, committed: int, report: Report
    ) -> Iterator[_Stored | _End]:
        """The committed records and markers that were not read before."""
        inode = segment.inode
        if segment.read_bytes >= len(inode.data):
            return
        data = bytes(inode.data[segment.read_bytes :])
        for position, header in whole_batches(data):
            if header.next_offset > committed:
                return
            if not check_crc(data, position, header):
                segment.is_damaged = True
                return
            horizon_ms = (
                header.base_timestamp_ms if header.attributes & HAS_DELETE_HORIZON else None
            )
            producer_id = header.producer_id if header.is_transactional else -1
            records = decode(data, position, verify_crc=False)
            newest_ms = max((each.timestamp_ms for each in records), default=None)
            if newest_ms is not None and newest_ms != header.max_timestamp_ms:
                report(
                    f"{where}: the header at {header.base_offset} says {header.max_timestamp_ms} "
                    f"ms, and the batch's newest record is of {newest_ms} ms"
                )
            for each in records:
                if header.is_control:
                    marker = decode_end_marker(each)
                    if marker is not None:
                        yield _End(each.offset, header.producer_id, marker.commit)
                    continue
                written = _Written(each.key, each.value, each.timestamp_ms, header.leader_epoch)
                stored = _Stored(each.offset, written, horizon_ms, producer_id)
                segment.records.append(stored)
                yield stored
            segment.read_bytes += header.size_bytes

    # ------------------------------------------------------------------------- judging

    def _compare(
        self, where: str, stored: _Stored, history: _History, retention_ms: int, report: Report
    ) -> None:
        offset, record, horizon_ms, _ = stored
        self.looked += 1
        first = history.written.setdefault(offset, record)
        if first is record and record.key is not None:
            history.take(stored)
            if record.value is None:
                history.tombstones[offset] = self._least_ms - _SEEN_LATE_MS
        elif first != record:
            report(f"{where} has {record} at {offset}, where {first} was committed")
        if record.value is not None or horizon_ms is None or offset not in history.tombstones:
            return
        earliest_ms = history.tombstones[offset] + retention_ms
        if horizon_ms < earliest_ms:
            report(
                f"{where}: the tombstone at {offset} may go at {horizon_ms} ms, and not before "
                f"{earliest_ms} ms is right"
            )

    def _judge(self, where: str, view: _View, history: _History, report: Report) -> None:
        found: set[int] = set()
        last = -1
        keys: dict[bytes, int] = {}
        held: dict[bytes, int] = {}
        for segment in view.segments:
            for offset, record, *_ in segment.records:
                if offset <= last:
                    report(f"{where}: offset {offset} comes after {last}")
                last = offset
                found.add(offset)
                if record.key is not None:
                    held[record.key] = offset
                if record.key is None or offset >= view.clean_end:
                    continue
                if record.key in keys:
                    report(
                        f"{where} is clean up to {view.clean_end}, and has {record.key!r} at "
                        f"{keys[record.key]} and at {offset}"
                    )
                keys[record.key] = offset
        for key, offset in history.latest.items():
            if offset in found or not view.log.start_offset <= offset < view.committed:
                continue
            since_ms = history.tombstones.get(offset)
            if since_ms is None:
                report(f"{where}: the last value of {key!r}, at {offset}, is gone")
            elif self._latest_ms < since_ms + view.log.config.delete_retention_ms:
                report(
                    f"{where}: the tombstone of {key!r} at {offset} is gone, seen since {since_ms} "
                    f"ms, and the latest clock shows {self._latest_ms} ms"
                )
            else:
                self.dropped += 1
                if held.get(key, offset) < offset:
                    report(
                        f"{where}: {key!r} was deleted at {offset}, the tombstone is gone, and the "
                        f"record at {held[key]} is still there"
                    )
