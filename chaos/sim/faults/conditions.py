"""The quality of the network and the disks during a whole storm."""

from __future__ import annotations

from chaos.sim.faults.field import Field


class Conditions:
    """``draw`` them before the storm. ``mend`` makes the network good again after it."""

    def __init__(self, field: Field) -> None:
        self._field = field

    def draw(self) -> None:
        rng, network = self._field.rng, self._field.simulation.fabric.faults
        network.slow, network.slow_s = rng.choice([0, 0.01, 0.05]), rng.uniform(0, 1)
        network.lost_request = rng.choice([0, 0.02])
        network.lost_reply = rng.choice([0, 0.02])
        network.duplicate = rng.choice([0, 0.05])
        network.late_copy = rng.choice([0, 0.1, 0.5])
        # Across a room or across a continent. With long latency more messages cross on their way.
        network.latency_s = rng.choice([network.latency_s, network.latency_s, (0.005, 0.03)])
        for node in self._field.nodes:
            disk = self._field.disk_faults(node)
            disk.cold_read = rng.choice([0, 0.3])
            if rng.random() < 0.2:
                disk.sync_s = (0.001, 0.05)
            disk.torn_page = rng.choice([0, 0.3])

    def mend(self) -> None:
        network = self._field.simulation.fabric.faults
        network.slow = network.duplicate = network.late_copy = 0
        network.lost_request = network.lost_reply = 0
