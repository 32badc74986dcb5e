"""What can be done to the disks, the networks and the clocks of nodes that are processes."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from chaos.drills.needs import Need
from chaos.faults import earlier_version, false_clocks, slow_disks, small_disks
from chaos.faults.false_clocks import FalseClock
from chaos.faults.relays import Relay
from chaos.faults.slow_disks import SlowDisks, process_tree
from chaos.faults.small_disks import SmallDisk
from chaos.process_cluster import THIS_VERSION, NodeProcess, Ports
from stele.errors import SteleError

_UNAVAILABLE: Final = {
    Need.SMALL_DISKS: small_disks.unavailable,
    Need.SLOW_DISKS: slow_disks.unavailable,
    Need.FALSE_CLOCKS: false_clocks.unavailable,
    Need.EARLIER_VERSION: earlier_version.unavailable,
}


def unavailable(needs: Collection[Need]) -> str | None:
    """Why this machine cannot do what is needed, or None."""
    reasons = (_UNAVAILABLE[each]() for each in Need if each in needs and each in _UNAVAILABLE)
    return next((reason for reason in reasons if reason), None)


class ProcessFaults:
    """Prepares nodes that are laid out and not started. ``close`` undoes it, after their end."""

    def __init__(self, needs: Collection[Need]) -> None:
        self._needs = needs
        self._small: dict[int, SmallDisk] = {}
        self._relays: dict[int, list[Relay]] = {}
        self._clocks: dict[int, FalseClock] = {}
        self._slow: SlowDisks | None = None
        self._groups: dict[int, Path] = {}

    async def prepare(self, nodes: dict[int, NodeProcess]) -> None:
        """Raises SteleError."""
        if reason := unavailable(self._needs):
            raise SteleError(reason)
        ports = Ports(None)
        for node_id, node in nodes.items():
            node.directory.mkdir(parents=True, exist_ok=True)
            if Need.EARLIER_VERSION in self._needs:
                self.set_version(node, is_earlier=True)
            if Need.FALSE_CLOCKS in self._needs:
                clock = FalseClock(node.directory)
                self._clocks[node_id] = clock
                node.environment.update(clock.environment)
            if node.kafka_port is None:
                continue
            if Need.SMALL_DISKS in self._needs:
                self._small[node_id] = SmallDisk(Path(node.settings["log.dirs"]))
            if Need.SLOW_NETWORK in self._needs:
                self._relays[node_id] = [
                    await _relay(node, "listeners", "advertised.listeners", ports.kafka()),
                    await _relay(node, "grpc.listeners", "grpc.advertised.listeners", ports.grpc()),
                ]

    def fill_disk(self, node: NodeProcess) -> None:
        self._small[node.node_id].fill()

    def free_disk(self, node: NodeProcess) -> None:
        self._small[node.node_id].free()

    def slow_disk(self, node: NodeProcess, writes_per_s: int) -> None:
        if self._slow is None:
            self._slow = SlowDisks(node.directory)
        group = self._slow.group_for(node.name, process_tree(node.pid))
        self._slow.limit(group, writes_per_s)
        self._groups[node.node_id] = group

    def restore_disk(self, node: NodeProcess) -> None:
        if self._slow is not None:
            self._slow.release(self._groups[node.node_id])

    def slow_network(self, node: NodeProcess, delay_ms: float) -> None:
        for relay in self._relays[node.node_id]:
            relay.delay_s = delay_ms / 1000

    def set_version(self, node: NodeProcess, *, is_earlier: bool) -> None:
        """A node of this version is executed, too: the drill's clients would wait for a nursery."""
        node.command = earlier_version.command() if is_earlier else THIS_VERSION

    def set_clock(self, node: NodeProcess, ahead_s: int) -> None:
        self._clocks[node.node_id].set(ahead_s)

    async def close(self) -> None:
        for relays in self._relays.values():
            for relay in relays:
                await relay.close()
        for disk in self._small.values():
            disk.close()
        if self._slow is not None:
            self._slow.close()
        self._small, self._relays, self._slow = {}, {}, None


async def _relay(node: NodeProcess, listened: str, advertised: str, port: int) -> Relay:
    """Put a relay in front of a listener, and have the node advertise it."""
    target_port = int(node.settings[listened].rpartition(":")[2])
    relay = Relay(port, target_port)
    await relay.start()
    node.settings[advertised] = f"PLAINTEXT://127.0.0.1:{port}"
    return relay
