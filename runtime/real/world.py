"""The real world of a server, put together."""

from __future__ import annotations

from concurrent.futures import Executor

from runtime.real.clock import RealClock, real_rng
from runtime.real.compute import RealCompute
from runtime.real.disk import RealDisk
from runtime.real.network import RealNetwork
from world.tracing import Tracer
from world.world import World


class RealWorld:
    """A ``World`` whose parts can be ended."""

    def __init__(
        self,
        *,
        syncs_in_kernel: bool = True,
        handshakes: Executor | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """``syncs_in_kernel``: see ``RealDisk``. ``handshakes``: see ``RealNetwork``."""
        self._disk = RealDisk(syncs_in_kernel=syncs_in_kernel)
        self._network = RealNetwork(handshakes)
        self._compute = RealCompute()
        self.world = World(
            clock=RealClock(),
            disk=self._disk,
            network=self._network,
            rng=real_rng(),
            compute=self._compute,
            tracer=tracer,
        )

    async def stop_serving(self) -> None:
        """End at once every server that was not closed, while the loop still runs."""
        await self._network.stop_serving()

    def close(self) -> None:
        """End the helper processes. Idempotent."""
        self._disk.close()
        self._compute.close()
