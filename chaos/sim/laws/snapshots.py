"""Compares each metadata snapshot with a simple replay of the log that it stands for."""

from __future__ import annotations

from typing import NamedTuple

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import whole_batches
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report
from metadata.delta import MetadataDelta
from metadata.image import EMPTY
from metadata.snapshot import image_of, records_of
from raft.messages import SnapshotId
from raft.quorum import VoterSet
from runtime.quorum.control import voters_in
from runtime.quorum.snapshots import parse_name, read
from stele.wire.batch import check_crc, decode

_SUFFIX = ".checkpoint"


class Content(NamedTuple):
    """The content of a snapshot."""

    records: tuple[bytes, ...]
    voters: VoterSet | None


class SnapshotsEqualTheLog(Law):
    """Each new snapshot equals the snapshot before it plus the log between them, voters included.
    All snapshots up to the same offset are equal.

    This can be replayed because the log beside a snapshot reaches back to the end of the snapshot
    before it.
    """

    name = "a snapshot equals the log it replaces"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self) -> None:
        self._known: dict[SnapshotId, Content] = {}
        self._seen: set[tuple[str, SnapshotId]] = set()  # by host

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.nodes.values():
            files = node.machine.disk.files(node.metadata_log, _SUFFIX)
            for name, inode in files:
                snapshot = parse_name(name)
                if snapshot is None or (node.host, snapshot) in self._seen:
                    continue
                self._seen.add((node.host, snapshot))
                found = read(inode.data, snapshot, cluster.cluster_id)
                content = Content(found.records, found.voters)
                self._check(cluster, node, snapshot, content, report)

    def _check(
        self,
        cluster: SimCluster,
        node: SimNode,
        snapshot: SnapshotId,
        content: Content,
        report: Report,
    ) -> None:
        known = self._known.get(snapshot) or self._replayed(cluster, node, snapshot)
        if known is not None:
            self.looked += 1
            if known.records != content.records:
                report(f"{node.host}: the snapshot {snapshot} is not what the log says")
            if known.voters != content.voters:
                report(
                    f"{node.host}: the snapshot {snapshot} has the voters {content.voters}, "
                    f"and the log {known.voters}"
                )
        self._known[snapshot] = content

    def _replayed(self, cluster: SimCluster, node: SimNode, snapshot: SnapshotId) -> Content | None:
        """Replay the log beside the snapshot. If that log is not whole, or the storm has damaged it
        since, replay another log with the same last record: the two agree on everything before it.
        None if there is no such log.
        """
        others = [each for each in cluster.nodes.values() if each is not node]
        for each in (node, *others):
            found = self._replayed_by(cluster, each, snapshot)
            if found is not None and (each is node or found[1] == snapshot.epoch):
                return found[0]
        return None

    def _replayed_by(
        self, cluster: SimCluster, node: SimNode, snapshot: SnapshotId
    ) -> tuple[Content, int] | None:
        """The content by this node's log, and the epoch of its last record below the snapshot's
        end. None if the log has a gap or damage since the last snapshot before."""
        earlier = [each for each in self._known if each.end_offset < snapshot.end_offset]
        before = max(earlier, key=lambda each: each.end_offset, default=None)
        image, end, epoch, voters = EMPTY, 0, 0, None
        if before is not None:
            end, epoch, (records, voters) = before.end_offset, before.epoch, self._known[before]
            image = image_of(end, records)
        delta = MetadataDelta(image)
        disk = node.machine.disk
        for _, inode in disk.files(node.metadata_log, ".log"):
            for position, header in whole_batches(inode.data):
                if header.base_offset > end or end == snapshot.end_offset:
                    break
                if header.base_offset < end:
                    continue
                if not check_crc(inode.data, position, header):
                    return None
                if header.is_control:
                    voters = voters_in(inode.data, position) or voters
                else:
                    values = [record.value or b"" for record in decode(inode.data, position)]
                    delta.replay_values(header.base_offset, values)
                end, epoch = header.next_offset, header.leader_epoch
        if end != snapshot.end_offset:
            return None
        return Content(tuple(records_of(delta.apply())), voters), epoch
