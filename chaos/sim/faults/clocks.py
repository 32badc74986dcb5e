"""Wall clocks jump."""

from __future__ import annotations

from typing import Final

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.fault import Family, Fault

_JUMP_MAX_MS: Final = 100_000


class JumpClock(Fault):
    """A node's wall clock jumps forward or back."""

    name, family, weight = "jump_clock", Family.CLOCK, 1

    def strike(self, node: SimNode) -> bool:
        node.machine.clock.jump(self.field.rng.randint(-_JUMP_MAX_MS, _JUMP_MAX_MS))
        return True
