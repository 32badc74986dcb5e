"""Where coordinators are for a client, and how the one on this broker is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from broker.coordinator.runtime import CoordinatorRuntime
from broker.coordinator.step import Machine, Request, Transaction
from broker.service.context import BrokerContext
from broker.service.internal_topics import (
    check_transactions,
    group_topic,
    made,
    transaction_topic,
)
from metadata.brokers import BrokerRegistration, Endpoint
from metadata.image import MetadataImage
from metadata.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC, coordinating_partition
from metadata.partitions import NO_LEADER
from metadata.topics import Topic
from runtime.authorization.authorizer import (
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

A = TypeVar("A")
M = TypeVar("M", bound=Machine)


class _Awaited:
    """A waiter that a handler awaits."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(self, answer: Any) -> None:
        if not self.future.done():  # otherwise no caller waits any more
            self.future.set_result(answer)

    def refuse(self, error: ErrorCode) -> None:
        if not self.future.done():
            self.future.set_exception(ApiError(error))


async def ask_coordinator(
    coordinators: CoordinatorRuntime[M],
    number: int,
    request: Request[A],
    transaction: Transaction | None = None,
) -> A:
    """What the coordinator of a partition answers to a request, whose records may be part of a
    transaction.

    Raises ApiError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE; with a
    transaction also what ``TransactionVerifier`` says.
    """
    awaited = _Awaited()
    if transaction is None:
        coordinators.submit(number, request, awaited)
    else:
        coordinators.submit_in_transaction(number, transaction, request, awaited)
    answer: A = await awaited.future
    return answer


class Kind(NamedTuple):
    """What coordinators there are."""

    topic_name: str
    topic: Callable[[NodeConfig, MetadataImage], pb.NewTopic]
    resource: Callable[[str], Resource]  # the coordinated resource, for the authorizer
    check: Callable[[MetadataImage], None]
    """Raises ApiError if the topic must not be made yet."""


GROUPS: Final = Kind(GROUP_TOPIC, group_topic, group_resource, lambda image: None)
TRANSACTIONS: Final = Kind(
    TRANSACTION_TOPIC, transaction_topic, transactional_id_resource, check_transactions
)


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
        self._kind = kind
        self._topic: Topic | ApiError | None = None

    async def of(self, key: str) -> tuple[BrokerRegistration, Endpoint]:
        """``key``: a group, or a transactional id. Raises ApiError GROUP_AUTHORIZATION_FAILED,
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE."""
        context, caller = self._context, self._caller
        resource = self._kind.resource(key)
        why = refusal(context.authorizer, caller, Operation.DESCRIBE, resource)
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
            wanted = self._kind.topic(self._context.config, image)
            try:
                if image.topic(wanted.name) is None:
                    self._kind.check(image)
                self._topic = await made(self._context, wanted)
            except ApiError as error:
                self._topic = error
        if isinstance(self._topic, ApiError):
            raise self._topic
        return self._topic
