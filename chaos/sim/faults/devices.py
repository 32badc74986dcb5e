"""Disks do not do what they are asked for."""

from __future__ import annotations

from typing import Final

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.fault import Family, Fault
from chaos.sim.faults.field import Field

_ROOM_MAX_BYTES: Final = 2000


class FailSyncs(Fault):
    """What is not on disk by now never gets there, though it can be read until a reboot."""

    name, family, weight = "fail_syncs", Family.DEVICE, 1

    def strike(self, node: SimNode) -> bool:
        self.field.disk_faults(node).failing_sync = True
        self.field.broken.add(node.id)
        return True


class FailReads(Fault):
    name, family, weight = "fail_reads", Family.DEVICE, 1

    def strike(self, node: SimNode) -> bool:
        if not self.field.damage.fail_reads(node):
            return False
        self.field.broken.add(node.id)
        return True


class FailWrites(Fault):
    name, family, weight = "fail_writes", Family.DEVICE, 1

    def strike(self, node: SimNode) -> bool:
        self.field.disk_faults(node).failing_write = True
        self.field.broken.add(node.id)
        return True


class FillDisk(Fault):
    """There is next to no room."""

    name, family, weight = "fill_disk", Family.DEVICE, 1

    def strike(self, node: SimNode) -> bool:
        disk = node.machine.disk
        disk.faults.quota_bytes = disk.used_bytes() + self.field.rng.randint(0, _ROOM_MAX_BYTES)
        self.field.broken.add(node.id)
        return True


class ExhaustHandles(Fault):
    """Clients have taken the node's file handles, most of them or all. It runs on; one that is
    started anew begins with handles enough."""

    name, family, weight = "exhaust_handles", Family.DEVICE, 1

    def strike(self, node: SimNode) -> bool:
        if not node.ready:
            return False
        self.field.simulation.note("storm", "no handles", node.host)
        self.field.disk_faults(node).no_handle = self.field.rng.choice([0.2, 0.5, 1.0])
        return True

    def mend(self) -> None:
        for node in self.field.nodes:
            self.field.disk_faults(node).no_handle = 0.0


class SlowDisk(Fault):
    """Syncs take up to two seconds."""

    name, family, weight = "slow_disk", Family.DEVICE, 1

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._sync_s: dict[int, tuple[float, float]] = {}  # by node, as it was before

    def strike(self, node: SimNode) -> bool:
        faults = self.field.disk_faults(node)
        self._sync_s.setdefault(node.id, faults.sync_s)
        faults.sync_s = 0.02, self.field.rng.choice([0.1, 0.5, 2.0])
        return True

    def mend(self) -> None:
        for node_id, sync_s in self._sync_s.items():
            self.field.disk_faults(self.field.cluster.nodes[node_id]).sync_s = sync_s
        self._sync_s.clear()
