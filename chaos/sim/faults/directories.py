"""Log directories that die and come back, perhaps in an earlier state, on brokers with two of
them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.field import Field

SECOND: Final = "/more"
"""The second log directory of each broker, with a device of its own. The first one also has the
metadata log, without which the node ends."""

_RESTART: Final = 0.4  # how likely a broker without its directory is restarted before the repair
_SNAPSHOT: Final = 0.3  # how likely a directory is restored from a snapshot, or gets one


class DyingDirectories:
    """The devices of second log directories. After a repair, all that was synced comes back. A
    directory that is restored has what was synced at the time of its snapshot."""

    def __init__(self, field: Field, counts: Counter[str]) -> None:
        self._field = field
        self._counts = counts
        self._rng: random.Random = field.simulation.rngs.of("directories")

    def pause_s(self) -> float:
        return self._rng.uniform(1.0, 8.0)

    def act(self) -> None:
        """Let the directory of a random broker die, or restore it. If it is dead, repair it, or
        restart the broker without it."""
        node = self._rng.choice(list(self._field.cluster.brokers.values()))
        lot = self._rng.random()
        is_dead = bool(self._field.disk_faults(node).dead)
        if not is_dead and lot < _SNAPSHOT:
            self._restore(node)
        elif not is_dead:
            self._field.disk_faults(node).dead = SECOND
            self._note("log directories dead", node)
        elif lot >= _RESTART:
            self._repair(node)
        elif self._field.kill(node):
            self._note("brokers restarted without a log directory", node)
            self._field.revive(node)

    def _restore(self, node: SimNode) -> None:
        """Restart the broker with an earlier state of its directory. The first time takes it."""
        images = self._field.images
        if images.take(node, SECOND):
            self._note("log directories kept as snapshots", node)
            return
        self._field.kill(node)
        images.restore(node, SECOND)
        self._field.revive(node)

    def mend(self) -> None:
        """Repair all of them. The nodes are without power then."""
        for node in self._field.cluster.brokers.values():
            if self._field.disk_faults(node).dead:
                self._repair(node)

    def _repair(self, node: SimNode) -> None:
        """Only a reboot shows which writes were lost."""
        self._note("log directories repaired", node)
        self._field.disk_faults(node).dead = ""
        if node.id not in self._field.dark:
            self._field.cut_power(node)
        if not self._field.is_calm:
            self._field.revive(node)

    def _note(self, what: str, node: SimNode) -> None:
        self._counts[what] += 1
        self._field.simulation.note("storm", what, node.host)
