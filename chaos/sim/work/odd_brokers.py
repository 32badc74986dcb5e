"""A broker that registers, is unregistered, and whose earlier requests arrive once more."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.cluster.cluster import CONTROLLER_PORT, SimCluster
from chaos.sim.cluster.view import newest_image
from metadata.features import supported_ranges
from stele.addresses import Address
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.admin_pb2 import UnregisterBrokerRequest
from stele.wire.v1.controller_pb2 import RegisterBrokerRequest, RegisterBrokerResponse
from stele.wire.v1.metadata_pb2 import Endpoint
from stele.world import RpcError

BROKER_ID: Final = 900
_REGISTER: Final = "/stele.v1.Controller/RegisterBroker"
_TIMEOUT_S: Final = 2.0
_REPEATED: Final = 4
"""Requests of so many processes are repeated: fewer than a controller remembers."""


@dataclass(frozen=True, slots=True)
class _Registered:
    incarnation_id: bytes
    broker_epoch: int


@dataclass(slots=True)
class OddBroker:
    """Call ``run``. The broker is only requests: it sends no heartbeat and stays fenced. None of
    its processes may register again once the broker was unregistered, whichever controller is
    asked."""

    cluster: SimCluster
    rng: random.Random
    report: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)
    _gone: list[_Registered] = field(default_factory=list)

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        while not is_done():
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
            try:
                await self._come_and_go()
            except (ApiError, RpcError):
                self.counts["odd brokers without an answer"] += 1

    async def _come_and_go(self) -> None:
        came = await self._register(self.rng.randbytes(16))
        if came is None:
            return
        answer = await self.cluster.client.change(UnregisterBrokerRequest(broker_id=BROKER_ID))
        if answer.error != ErrorCode.NONE:
            return
        self._gone = [*self._gone, came][-_REPEATED:]
        late = self.rng.choice(self._gone)
        self.counts["late registrations"] += 1
        found = await self._register(late.incarnation_id)
        # A deposed controller may still know the former registration, and answers its epoch.
        if found is not None and found != late:
            self.report(f"a late request registers broker {BROKER_ID}, which was unregistered")

    async def _register(self, incarnation_id: bytes) -> _Registered | None:
        """Ask the active controller. None if it refuses. Raises RpcError."""
        node, image = self.cluster.active_controller, newest_image(self.cluster)
        if node is None or image is None or not image.brokers:
            return None
        other = image.sorted_brokers()[0]
        request = RegisterBrokerRequest(
            cluster_id=self.cluster.cluster_id,
            broker_id=BROKER_ID,
            incarnation_id=incarnation_id,
            endpoints=[
                Endpoint(
                    listener=each.listener, host="nowhere", port=each.port, protocol=each.protocol
                )
                for each in other.endpoints
            ],
            features=supported_ranges(),
        )
        channel = self.cluster.client_world.network.channel(Address(node.host, CONTROLLER_PORT))
        try:
            raw = await channel.call(_REGISTER, request.SerializeToString(), timeout_s=_TIMEOUT_S)
        finally:
            await channel.close()
        answer = RegisterBrokerResponse.FromString(raw)
        if answer.error != ErrorCode.NONE:
            return None
        return _Registered(incarnation_id, answer.broker_epoch)
