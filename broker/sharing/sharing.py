"""The parts of one broker that serve share groups, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.coordinator.node_requests import Nodes
from broker.coordinator.runtime import Host
from broker.coordinator.share_states import ShareStates
from broker.coordinator.shares import ShareCoordinators, ShareLogCutter
from broker.replication.parts import Deletions
from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from runtime.config.node import NodeConfig
from stele.world import Clock


class Replicas(Protocol):
    """What they need of ``broker.replication.manager.ReplicaManager``."""

    @property
    def deletion(self) -> Deletions: ...


class Sharing:
    """Subscribes to the metadata behind the replica manager."""

    is_served = False
    """Whether clients and brokers may use it. It is not while parts are missing."""

    def __init__(
        self,
        config: NodeConfig,
        replicas: Replicas,
        host: Host,
        nodes: Nodes,
        *,
        image: Callable[[], MetadataImage],
        clock: Clock,
    ) -> None:
        self.coordinators = ShareCoordinators(config, host, clock=clock)
        self._cutter = ShareLogCutter(self.coordinators, replicas.deletion)
        self.states = ShareStates(
            self.coordinators, nodes, broker_id=config.node_id, image=image, clock=clock
        )

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.coordinators.apply(delta, image)

    async def stop(self) -> None:
        await self._cutter.stop()
        await self.states.stop()
        await self.coordinators.stop()
