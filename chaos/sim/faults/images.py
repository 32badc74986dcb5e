"""Snapshots of whole disks, as of virtual machines, and machines that are restored from them."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.damage import ROOT, Damage
from chaos.sim.world.disk import DiskImage
from storage.incarnations import INCARNATIONS_FILE, decode_incarnations


class Images:
    """One snapshot for each broker that is no controller. A voter whose log and votes go back must
    not come back as the same voter (docs/quorum.md), so no disk with a voter's log is restored.

    A snapshot is used only if its disk can be recognized as an earlier one: another process has
    registered since. Nothing on a disk tells how far the same process had come.
    """

    def __init__(self, cluster: SimCluster, damage: Damage) -> None:
        self._cluster = cluster
        self._damage = damage
        self._images: dict[int, DiskImage] = {}  # by broker

    def take(self, node: SimNode) -> bool:
        """Take a snapshot, unless there is one. The node may run."""
        disk = node.machine.disk
        if node.id in self._images or node.id in self._cluster.controllers:
            return False
        if disk.faults.failing_read or INCARNATIONS_FILE not in disk.names(ROOT):
            return False
        self._images[node.id] = disk.image(ROOT)
        disk.note("snapshot", ROOT)
        return True

    def restore(self, node: SimNode) -> bool:
        """Restore a broker that is down from its snapshot."""
        image = self._images.get(node.id)
        last = self._damage.registered_incarnation(node)
        if image is None or last is None:
            return False
        content = image.get(INCARNATIONS_FILE)
        if not isinstance(content, bytes) or last in decode_incarnations(content, ROOT):
            return False
        if not self._damage.restore(node, image):
            return False
        del self._images[node.id]
        return True
