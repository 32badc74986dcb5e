"""What the handlers of the Kafka APIs share: a request's context, its answer, and how an API is
served."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

from broker.api.topic_views import TopicViews
from broker.replication.types import Cancel
from broker.service.context import BrokerContext
from runtime.authorization.caller import Caller
from runtime.kafka.connection import KafkaServerProtocol
from stele.cluster.kafka_connection import SOFTWARE_NAME
from stele.errors import ErrorCode
from stele.wire.kafka import Api, Struct

logger = logging.getLogger(__name__)

NO_OPERATIONS = -(2**31)
"""The value of "authorized operations" in an answer to a client that did not ask for them
(KIP-430)."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The context of a request beside its content; requests of one connection may share it."""

    version: int
    caller: Caller
    topic_views: TopicViews
    connection: KafkaServerProtocol  # its fetch session belongs to it

    @property
    def is_ours(self) -> bool:
        """Whether the client knows the fields that Kafka lacks. Others are not sent them."""
        return self.connection.software_name == SOFTWARE_NAME

    def close(self, reason: str) -> None:
        """Close the connection: the client must notice an error that no answer can carry."""
        logger.info("closing %s: %s", self.connection.peer, reason)
        self.connection.close()


Reply = Callable[[Struct | None], None]
"""Takes the response, once, possibly before the handler returns; None: none is sent."""


Handler = Callable[[BrokerContext, RequestContext, Any, Reply], Cancel | None]
AsyncHandler = Callable[[BrokerContext, RequestContext, Any], Awaitable[Struct | None]]
Prepare = Callable[[BrokerContext, RequestContext, Any], Generator[None, None, Any]]
"""Turns a request of many elements, in slices, into the message that its handler takes."""
Refuse = Callable[[RequestContext, Any, ErrorCode], Struct]
"""The whole request's response when its handler failed."""

RefuseInTurns = Callable[[RequestContext, Any, ErrorCode], Awaitable[Struct]]
"""The same for a response that names each element of the request: it is made in slices."""


@dataclass(frozen=True, slots=True)
class Served:
    """An API as this broker serves it; exactly one of the two handlers is given."""

    api: Api[Any, Any]
    refuse: Refuse | RefuseInTurns
    handle: Handler | None = None
    handle_async: AsyncHandler | None = None
    prepare: Prepare | None = None
    """For a kind of request that takes no turns: its handler has to work in one."""
    advertised_from: int | None = None  # where that is less than what can be decoded
    max_version: int | None = None  # where that is less than what can be decoded
    explains: bool = False
    """Whether the response has a field of ours, ``error_message``, for why its handler failed."""

    @property
    def versions(self) -> tuple[int, int]:
        """The versions that ApiVersions lists."""
        first = self.api.min_version if self.advertised_from is None else self.advertised_from
        last = self.api.max_version if self.max_version is None else self.max_version
        return first, last

    @property
    def decodable(self) -> range:
        """The accepted versions. An older one may be advertised nevertheless."""
        return range(self.api.min_version, self.versions[1] + 1)
