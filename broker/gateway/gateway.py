"""All that a broker does for its thin clients."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from broker.gateway.leaders import PartitionLeaders
from broker.gateway.publishers import Publisher
from broker.gateway.publishing import Publication, PublishOutlet, Writers
from broker.gateway.refusals import stream_error, stream_failure
from broker.gateway.runs import Room
from broker.gateway.shared_writers import SharedWriters
from broker.gateway.streams import Streams
from broker.gateway.subscribing import SubscribeOutlet, Subscription
from broker.gateway.transactional_producers import TransactionalProducers
from broker.service.context import BrokerContext
from broker.service.producers import new_producer_id
from broker.service.topics import Topics
from runtime.authorization.authorizer import Operation
from runtime.authorization.caller import Caller
from stele.addresses import address_text
from stele.config import ClientWorld, CompressionName
from stele.errors import ApiError, ErrorCode
from stele.producer.partitioner import partitions_of
from stele.wire.compression import Compression

PUBLISH_STREAMS_MAX: Final = 1_000
SUBSCRIBE_STREAMS_MAX: Final = 200

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most bytes of records that wait for leaders, of all Publish streams together."""
_PATIENCE_S = 2.0
"""How long a broker that stops waits for records that are under way."""


class Gateway:
    """One broker's. ``close`` it before its listeners."""

    def __init__(self, context: BrokerContext, world: ClientWorld) -> None:
        self.context = context
        self.publications = Streams("Publish", PUBLISH_STREAMS_MAX)
        self.subscriptions = Streams("Subscribe", SUBSCRIBE_STREAMS_MAX)
        self._world = world
        self._leaders = PartitionLeaders(context, world.connector)
        room = Room(WAITING_BYTES_MAX)
        self._writers = Writers(
            SharedWriters(self._leaders, context.producer_ids.take, room, world),
            self._publisher,
            TransactionalProducers(world, lambda: bootstrap_servers(context)),
            room,
        )

    def publication(self, caller: Caller, outlet: PublishOutlet) -> Publication:
        """A stream of records to write, which the caller is to run in ``publications``. Raises
        RpcError."""
        self._require_metadata()
        return Publication(self.context, caller, self._writers, outlet)

    async def create_publisher(self, caller: Caller) -> int:
        """A new publisher's id. Raises RpcError."""
        self._require_metadata()
        try:
            return await new_producer_id(self.context, caller)
        except ApiError as error:
            raise stream_failure(error) from error

    async def find_partitions(
        self, caller: Caller, name: str, keys: Sequence[bytes]
    ) -> tuple[int, list[int]]:
        """The number of the topic's partitions, and the partition of each key. Raises RpcError."""
        self._require_metadata()
        topic = Topics(self.context, caller, Operation.DESCRIBE).named(name)
        if isinstance(topic, ErrorCode):
            raise stream_error(topic, metadata={"topic": name})
        count = len(topic.partitions)
        return count, await partitions_of(keys, count)

    def _publisher(self, publisher_id: int, compression: CompressionName) -> Publisher:
        return Publisher(
            publisher_id,
            Compression.of(compression),
            self._leaders,
            self._writers.room,
            self._world,
        )

    def subscription(self, caller: Caller, outlet: SubscribeOutlet) -> Subscription:
        """A stream of records to read, which the caller is to run in ``subscriptions``. Raises
        RpcError."""
        self._require_metadata()
        return Subscription(
            self.context, caller, self._world, bootstrap_servers(self.context), outlet
        )

    def streams(self) -> dict[str, float]:
        """The number of open streams, by method."""
        open_ = {"Publish": self.publications, "Subscribe": self.subscriptions}
        return {method: float(len(streams)) for method, streams in open_.items()}

    async def close(self) -> None:
        """Tell all clients that the broker stops, and end their streams."""
        await asyncio.gather(
            self.publications.close(_PATIENCE_S), self.subscriptions.close(_PATIENCE_S)
        )
        await self._writers.transactional.close()
        await self._writers.shared.close()
        await self._leaders.close()

    def _require_metadata(self) -> None:
        """A broker that has just started would say that every topic is gone."""
        if not self.context.caught_up():
            broker_id = self.context.broker_id
            raise stream_error(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"broker {broker_id} has not caught up with the metadata yet",
            )


def bootstrap_servers(context: BrokerContext) -> str:
    """The Kafka addresses of all brokers for each other, this one's first. Raises RpcError."""
    own_first = sorted(
        context.image().sorted_brokers(), key=lambda each: each.broker_id != context.broker_id
    )
    found = [
        address_text(kafka.host, kafka.port)
        for registration in own_first
        if (kafka := registration.endpoint(context.config.inter_broker_listener_name))
    ]
    if found:
        return ",".join(found)
    raise stream_error(
        ErrorCode.LISTENER_NOT_FOUND,
        f"no broker has an address on {context.config.inter_broker_listener_name!r}",
    )
