"""Where coordinators are for a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.service.context import BrokerContext
from broker.service.internal_topics import (
    check_transactions,
    group_topic,
    made,
    share_topic,
    transaction_topic,
)
from metadata.brokers import BrokerRegistration, Endpoint
from metadata.image import MetadataImage
from metadata.internal_topics import (
    GROUP_TOPIC,
    SHARE_TOPIC,
    TRANSACTION_TOPIC,
    coordinating_partition,
)
from metadata.partitions import NO_LEADER
from metadata.topics import Topic
from runtime.authorization.authorizer import (
    CLUSTER,
    Operation,
    Resource,
    group_resource,
    refusal,
    transactional_id_resource,
)
from runtime.authorization.caller import Caller
from runtime.config.node import NodeConfig
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb


class Kind(NamedTuple):
    """What coordinators there are."""

    topic_name: str
    topic: Callable[[NodeConfig, MetadataImage], pb.NewTopic]
    resource: Callable[[str], Resource]  # the coordinated resource, for the authorizer
    check: Callable[[MetadataImage], None]
    """Raises ApiError if the topic must not be made yet."""
    operation: Operation = Operation.DESCRIBE  # on the resource, to find its coordinator


GROUPS: Final = Kind(GROUP_TOPIC, group_topic, group_resource, lambda image: None)
TRANSACTIONS: Final = Kind(
    TRANSACTION_TOPIC, transaction_topic, transactional_id_resource, check_transactions
)
SHARES: Final = Kind(
    SHARE_TOPIC, share_topic, lambda key: CLUSTER, lambda image: None, Operation.CLUSTER_ACTION
)
"""Share partitions. Only nodes look for their coordinators."""


def check_coordination_known(context: BrokerContext) -> None:
    """Raises ApiError COORDINATOR_LOAD_IN_PROGRESS while this broker does not know what it
    coordinates. A list would lack groups or transactions that the metadata still give to it: it has
    just been restarted, and is not registered again."""
    if not context.caught_up():
        raise ApiError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"broker {context.broker_id} has not caught up with the metadata yet",
        )


def coordinated_by(context: BrokerContext, kind: Kind, key: str) -> int:
    """The partition whose leader coordinates a group or a transactional id. Raises ApiError
    NOT_COORDINATOR: there is no such partition yet."""
    topic = context.image().topic(kind.topic_name)
    if topic is None:
        raise ApiError(ErrorCode.NOT_COORDINATOR)
    return coordinating_partition(key, len(topic.partitions))


class Coordinators:
    """The brokers that coordinate groups or transactions, and where they are for the caller.

    The topic is made if it is not there, once for all keys of a request.
    """

    def __init__(self, context: BrokerContext, caller: Caller, kind: Kind) -> None:
        self._context = context
        self._caller = caller
        self.kind = kind
        self._topic: Topic | ApiError | None = None

    async def of(self, key: str) -> tuple[BrokerRegistration, Endpoint]:
        """``key``: a group, a transactional id or a share partition. Raises ApiError
        GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        CLUSTER_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE."""
        context, caller = self._context, self._caller
        resource = self.kind.resource(key)
        why = refusal(context.authorizer, caller, self.kind.operation, resource)
        if why is not None:
            raise why
        topic = await self._made()
        leader = topic.partitions[coordinating_partition(key, len(topic.partitions))].leader
        registration = None if leader == NO_LEADER else context.image().broker(leader)
        if registration is not None and not registration.fenced:
            endpoint = registration.endpoint(caller.listener, caller.plane)
            if endpoint is not None:
                return registration, endpoint
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator is moving")

    async def _made(self) -> Topic:
        if self._topic is None:
            image = self._context.image()
            wanted = self.kind.topic(self._context.config, image)
            try:
                if image.topic(wanted.name) is None:
                    self.kind.check(image)
                self._topic = await made(self._context, wanted)
            except ApiError as error:
                self._topic = error
        if isinstance(self._topic, ApiError):
            raise self._topic
        return self._topic
