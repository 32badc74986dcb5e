"""Synced data is damaged or lost, but only where other replicas have it (``damage``)."""

from __future__ import annotations

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.fault import Family, Fault


class SpoilSector(Fault):
    name, family, weight = "spoil_sector", Family.DAMAGE, 2

    def strike(self, node: SimNode) -> bool:
        return self.field.damage.spoil_sector(node)


class FlipBit(Fault):
    name, family, weight = "flip_bit", Family.DAMAGE, 2
    seen_as = ("bits flipped in replicas", "bits flipped in metadata logs")

    def strike(self, node: SimNode) -> bool:
        self.field.kill(node)
        return self.field.damage.flip_bit(node)


class LoseFile(Fault):
    name, family, weight = "lose_file", Family.DAMAGE, 2
    seen_as = ("files beside logs lost", "files of metadata logs lost")

    def strike(self, node: SimNode) -> bool:
        self.field.kill(node)
        return self.field.damage.lose_file(node)


class RestoreDisk(Fault):
    """A machine is restored from a snapshot that was taken while an earlier process of its broker
    ran, or after that had stopped. The first strike at a broker takes the snapshot."""

    name, family, weight = "restore_disk", Family.DAMAGE, 1
    seen_as = ("disks restored",)

    def strike(self, node: SimNode) -> bool:
        if self.field.images.take(node):
            return True
        self.field.kill(node)
        return self.field.images.restore(node)


class WipeDisk(Fault):
    name, family, weight = "wipe_disk", Family.DAMAGE, 1
    seen_as = ("disks wiped",)

    def strike(self, node: SimNode) -> bool:
        self.field.kill(node)
        return self.field.damage.wipe(node)
