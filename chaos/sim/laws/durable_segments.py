"""Compares segments that logs call synced with what a power loss would leave."""

from __future__ import annotations

from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import online
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report
from storage.swaps import SWAP_FILE

_LOOKED_AT = 3  # newest segments of a log; older ones were looked at when they were new


class DurableIsDurable(Law):
    """A segment with records that a log calls synced is on disk: its directory entry, and all its
    bytes if the log calls all of them synced. That is so of each segment but the last one, and of
    that while nothing waits for a sync."""

    name = "durable is durable"
    cadence = Cadence.SELDOM

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node, replica in online(cluster):
            if replica.log.config.strict_flush:
                self._check(cluster, node, replica, report)

    def _check(self, cluster: SimCluster, node: SimNode, replica: Replica, report: Report) -> None:
        log = replica.log
        disk = node.machine.disk
        directory = node.replica_path(repr(replica))
        if disk.files(directory, SWAP_FILE):
            return  # a crash leaves the old segments or the compacted ones: the note makes it whole
        kept = {id(inode) for inode in disk.durable_files(directory, ".log")}
        newest = disk.files(directory, ".log")[-_LOOKED_AT:]
        for at, (name, inode) in enumerate(newest):
            if int(name.removesuffix(".log")) >= log.synced_offset:
                return
            self.looked += 1
            is_synced = at + 1 < len(newest) or log.synced_offset == log.end_offset
            # After a truncation the disk may have more.
            is_whole = inode.durable[: len(inode.data)] == inode.data
            if id(inode) not in kept or (is_synced and not is_whole):
                report(
                    f"{replica!r} on broker {node.id} calls all below {log.synced_offset} synced, "
                    f"and a loss of power would take {name} or a part of it"
                )
