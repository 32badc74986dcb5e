"""A controller of another cluster, at an address that the nodes of this one have configured."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from chaos.sim.cluster.cluster import CONTROLLER_PORT, SimCluster
from chaos.sim.laws.quorum_answers import MESSAGES
from stele.addresses import Address
from stele.errors import ErrorCode
from world.network import Peer, Service

HOST: Final = "foreign"
ADDRESS: Final = f"{HOST}:{CONTROLLER_PORT}"
_CLUSTER_ID: Final = "another-cluster"
_EPOCH: Final = 1_000_000  # above every epoch of this cluster


@dataclass(slots=True)
class Foreigner:
    """Call ``run``. It refuses every request with INCONSISTENT_CLUSTER_ID. It also names its own
    epoch and leader, as nodes of Stele did at first. Nobody may believe them."""

    cluster: SimCluster
    counts: Counter[str] = field(default_factory=Counter)

    async def run(self, is_done: Callable[[], bool]) -> None:
        process = self.cluster.simulation.process(HOST)
        service = Service(unary={method: partial(self._refuse, method) for method in MESSAGES})
        await process.run(process.world.network.serve(Address(HOST, CONTROLLER_PORT), service))
        while not is_done():
            await asyncio.sleep(1.0)

    async def _refuse(self, method: str, payload: bytes, _: Peer) -> bytes:
        request, response = MESSAGES[method]
        assert request.FromString(payload).cluster_id not in ("", _CLUSTER_ID)
        self.counts["foreigners asked"] += 1
        refusal = response(
            error=ErrorCode.INCONSISTENT_CLUSTER_ID,
            epoch=_EPOCH,
            leader_id=1,
            leader_endpoint=ADDRESS,
        )
        encoded: bytes = refusal.SerializeToString()
        return encoded
