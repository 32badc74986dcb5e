"""Disks fail, fill up, slow down or run out of file handles."""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.fault import Family, Fault
from chaos.sim.faults.field import Field
from chaos.sim.world.disk import DiskFaults

_ROOM_MAX_BYTES: Final = 2000
_FULL_S: Final = (0.1, 5.0)  # how long a disk is full that somebody frees


class FailSyncs(Fault):
    """Syncs fail. Unsynced bytes never reach the disk, but can be read until a reboot."""

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


class FailWriteBack(Fault):
    """The device cannot write the next bytes of a log in the background, once. Syncs are told."""

    name, family, weight = "fail_write_back", Family.DEVICE, 1

    def strike(self, node: SimNode) -> bool:
        # Each has an owner of its own, which must hear of it (runtime.real.held_directories).
        owned = [f"{path}/" for path in sorted({node.metadata_log, *node.config.log_dirs})]
        self.field.rng.shuffle(owned)
        faults = self.field.disk_faults(node)
        faults.owned = tuple(owned)
        faults.failing_write_back = owned[0]
        # Often the sync of another owner is the first to end after the failure.
        faults.failing_during = self.field.rng.choice(["", owned[-1]])
        self.field.broken.add(node.id)
        return True


class FillDisk(Fault):
    """The disk has next to no free room."""

    name, family, weight = "fill_disk", Family.DEVICE, 1

    def strike(self, node: SimNode) -> bool:
        disk = node.machine.disk
        disk.faults.quota_bytes = disk.used_bytes() + self.field.rng.randint(0, _ROOM_MAX_BYTES)
        self.field.broken.add(node.id)
        return True


class FillDiskForAWhile(Fault):
    """The disk has next to no free room until somebody frees some. No process is restarted."""

    name, family, weight = "fill_disk_for_a_while", Family.DEVICE, 1

    def strike(self, node: SimNode) -> bool:
        faults = self.field.disk_faults(node)
        if faults.quota_bytes is not None:
            return False
        room_bytes = self.field.rng.randint(0, _ROOM_MAX_BYTES)
        faults.quota_bytes = node.machine.disk.used_bytes() + room_bytes
        self.field.go_on(self._free(faults, self.field.rng.uniform(*_FULL_S)))
        return True

    async def _free(self, faults: DiskFaults, after_s: float) -> None:
        end = self.field.simulation.now + after_s
        while not (self.field.is_calm or self.field.simulation.now > end):
            await asyncio.sleep(0.1)
        faults.quota_bytes = None


class ExhaustHandles(Fault):
    """Clients hold most or all of the node's file handles. The node runs on. A restarted node has
    enough handles again."""

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
        self._sync_s: dict[int, tuple[float, float]] = {}  # the times before the fault, by node

    def strike(self, node: SimNode) -> bool:
        faults = self.field.disk_faults(node)
        self._sync_s.setdefault(node.id, faults.sync_s)
        faults.sync_s = 0.02, self.field.rng.choice([0.1, 0.5, 2.0])
        return True

    def mend(self) -> None:
        for node_id, sync_s in self._sync_s.items():
            self.field.disk_faults(self.field.cluster.nodes[node_id]).sync_s = sync_s
        self._sync_s.clear()
