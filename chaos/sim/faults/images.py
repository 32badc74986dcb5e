"""Snapshots of disks, as of virtual machines and volumes, and disks that are restored from them."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.damage import ROOT, Damage
from chaos.sim.world.disk import DiskImage
from stele.ids import decode_uuid
from storage.checkpoints import META_PROPERTIES_FILE
from storage.incarnations import INCARNATIONS_FILE, decode_incarnations


class Images:
    """One snapshot for each disk of a broker. A voter whose log and votes go back must not come
    back as the same voter (docs/quorum.md), so no disk with a voter's log is restored.

    A snapshot is used only if its disk can be recognized as an earlier one: another process has
    registered with it since. Nothing on a disk tells how far the same process had come.
    """

    def __init__(self, cluster: SimCluster, damage: Damage) -> None:
        self._cluster = cluster
        self._damage = damage
        self._images: dict[tuple[int, str], DiskImage] = {}  # by broker and directory

    def take(self, node: SimNode, path: str = ROOT) -> bool:
        """Take a snapshot, unless there is one. The node may run."""
        disk = node.machine.disk
        if (node.id, path) in self._images:
            return False
        if path == ROOT and node.id in self._cluster.controllers:
            return False
        if disk.faults.failing_read or INCARNATIONS_FILE not in disk.names(path):
            return False
        self._images[node.id, path] = disk.image(path)
        disk.note("snapshot", path)
        return True

    def restore(self, node: SimNode, path: str = ROOT) -> bool:
        """Restore a disk of a broker that is down from its snapshot."""
        image = self._images.get((node.id, path))
        if image is None:
            return False
        last = self._damage.last_incarnation(node, _directory_id(image))
        content = image.get(INCARNATIONS_FILE)
        if last is None or not isinstance(content, bytes):
            return False
        if last in decode_incarnations(content, path):
            return False
        if not self._damage.restore(node, image, path):
            return False
        del self._images[node.id, path]
        return True


def _directory_id(image: DiskImage) -> bytes:
    content = image[META_PROPERTIES_FILE]
    assert isinstance(content, bytes)
    fields = dict(line.split("=", 1) for line in content.decode().splitlines())
    return decode_uuid(fields["directory.id"])
