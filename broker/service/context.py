"""What every request handler of a broker works with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from broker.coordinator.groups import GroupCoordinators
from broker.coordinator.transactions import TransactionCoordinators
from broker.membership.controller_client import ControllerClient
from broker.metrics import BrokerMetrics
from broker.replication.fetch_session import FetchSessions
from broker.replication.parts import ReplicaParts
from broker.service.producer_ids import ProducerIds
from broker.service.quotas import BrokerQuotas
from broker.service.telemetry import ClientTelemetry
from broker.sharing.sharing import Sharing
from metadata.image import MetadataImage
from raft.quorum import FeatureLevels
from runtime.authorization.authorizer import Authorizer
from runtime.config.node import NodeConfig
from runtime.kafka.connection import KafkaServerProtocol
from runtime.quorum.log import HistoryPiece
from stele.world import Clock
from world.network import ServerTls
from world.tracing import Tracer


class MetadataLog(Protocol):
    """This broker's replica of the metadata log, for those who ask for its history."""

    @property
    def high_watermark(self) -> int: ...

    async def read_history(self, offset: int) -> HistoryPiece:
        """A part of the committed metadata log, from ``offset`` on. Raises SteleError."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """Handles to the parts of one broker.

    ``image`` gives the newest published image, ``wait_until`` waits for one that a predicate
    accepts, so many seconds, and says whether it came. ``lease_valid`` says whether the active
    controller has answered this broker of late: whether the image is more than history.
    ``deposed`` is as ``BrokerLifecycle.deposed``: then the image hides what this broker led.
    ``caught_up`` says whether that was ever so since the process began. Before, the image may be
    empty: only the quorum's leader knows how much of this broker's metadata log is committed.
    ``controller_features``: the levels that the voters support, by the newest record of them.
    """

    config: NodeConfig
    cluster_id: str
    clock: Clock
    image: Callable[[], MetadataImage]
    wait_until: Callable[[Callable[[MetadataImage], bool], float], Awaitable[bool]]
    replicas: ReplicaParts
    sessions: FetchSessions
    controller: ControllerClient
    producer_ids: ProducerIds
    groups: GroupCoordinators
    transactions: TransactionCoordinators
    sharing: Sharing
    metrics: BrokerMetrics
    lease_valid: Callable[[], bool]
    deposed: Callable[[], bool]
    controller_features: Callable[[], Mapping[int, tuple[FeatureLevels, ...]]]
    new_request_id: Callable[[], bytes]
    authorizer: Authorizer
    metadata_log: MetadataLog
    quotas: BrokerQuotas
    caught_up: Callable[[], bool] = lambda: True
    tracer: Tracer | None = None
    why_not_certificates: Callable[[Mapping[str, str | None]], Awaitable[str | None]] | None = None
    """Why this broker would not serve by changed keys of its stores; None if nobody can tell."""

    connections: Callable[[], Iterable[KafkaServerProtocol]] = tuple
    """The open connections of the Kafka listeners."""
    encrypted_listeners: Mapping[str, ServerTls] = field(default_factory=dict)
    """By name, of Kafka's protocol and of gRPC."""
    telemetry: ClientTelemetry | None = None
    """None: this broker has no receiver for the metrics of clients."""

    @property
    def broker_id(self) -> int:
        return self.config.node_id
