"""The real world of a server, put together."""

from __future__ import annotations

from runtime.real.clock import RealClock, real_rng
from runtime.real.disk import RealDisk
from runtime.real.network import RealNetwork
from stele.world import World


class RealWorld:
    """A ``World`` and the helper processes of its disk, which ``close`` ends."""

    def __init__(self) -> None:
        self._disk = RealDisk()
        self.world = World(
            clock=RealClock(), disk=self._disk, network=RealNetwork(), rng=real_rng()
        )

    def close(self) -> None:
        self._disk.close()
