"""A request of a Kafka connection on its way to its handler, and what a handler is."""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator
from typing import Protocol

from runtime.quota.precedence import Client
from stele.errors import ErrorCode
from stele.wire import kafka
from stele.wire.kafka.messages import api_versions
from stele.world import Buffer
from world.tracing import Span


class Queue(enum.Enum):
    """Where a request waits within the connection."""

    REQUESTS = "requests"  # decoded, until the answer of the one before is written
    ANSWERS = "answers"  # answered, until earlier answers are there and its own is encoded


class AnsweringConnection(Protocol):
    """The connection on which a request came."""

    def answer(self, pending: PendingRequest, message: kafka.Struct | None) -> None:
        """As ``PendingRequest.answer``."""
        ...


class Timing(Protocol):
    """Whether connections measure what they take of the event loop, at present."""

    @property
    def turn_clock(self) -> Callable[[], float] | None:
        """The clock by which they do; None: they need not."""
        ...


class Dispatch(Protocol):
    """The handler of requests: the broker's APIs."""

    @property
    def timing(self) -> Timing:
        """The same for the whole life of a connection."""
        ...

    def serves(self, api_key: int, api_version: int) -> bool:
        """Whether ``handle`` takes this; a request of any other kind closes the connection."""
        ...

    def takes_turns(self, header: kafka.RequestHeader, message: kafka.Struct) -> bool:
        """Whether a request waits for earlier requests that take turns. A kind of request takes no
        turns if working on several at once gains much and their answers take little memory."""
        ...

    def prepare(
        self, request: PendingRequest, message: kafka.Struct
    ) -> Generator[None, None, kafka.Struct]:
        """What is done in slices to a request of many elements before ``handle`` takes it, with the
        message that it returns. No later request of the connection overtakes it meanwhile."""
        ...

    def handle(self, request: PendingRequest, message: kafka.Struct) -> None:
        """Take a request of a served kind; answer now or later by ``PendingRequest.answer``.

        Requests of one connection come in their order. An exception is logged and closes the
        connection.
        """
        ...

    def answered(self, request: PendingRequest, message: kafka.Struct | None) -> None:
        """A request that ``handle`` took is answered with the message, which may be changed."""
        ...

    def waited(self, header: kafka.RequestHeader, queue: Queue, waited_s: float) -> None:
        """A request has waited for this time in a queue. It is not called for requests that need
        not wait."""
        ...


def other_version_needed() -> kafka.Struct:
    """The answer to ApiVersions of a version that is not served: which are (KIP-511)."""
    api = api_versions.API
    own = api_versions.ApiVersion(api.key, api.min_version, api.max_version)
    return api_versions.ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [own])


class PendingRequest:
    """A request, from its header to the writing of its answer. It is what handlers answer."""

    __slots__ = (
        "answer_bytes",
        "began_s",
        "buffers",
        "connection",
        "done",
        "header",
        "is_answered",
        "local_s",
        "memory_bytes",
        "payer",
        "size_bytes",
        "span",
        "throttle_ms",
        "waits_since_s",
        "withdraw",
    )

    def __init__(
        self, connection: AnsweringConnection, header: kafka.RequestHeader, size_bytes: int
    ) -> None:
        self.connection = connection
        self.header = header
        self.size_bytes = size_bytes  # of the request's frame
        self.memory_bytes = kafka.memory_of_request(header.api_key, size_bytes)
        self.answer_bytes = 0
        self.is_answered = False  # the handler gave its answer, which may still be encoded
        self.done = False
        self.buffers: list[Buffer] = []  # the answer; empty: none is due
        self.waits_since_s: float | None = None  # the loop's time; None: it waits in no queue
        # For the handlers. ``withdraw`` is called if the connection is lost before the answer. The
        # times are of their clock: when they took the request, and how long they had worked on it
        # when it began to wait (None: it did not).
        self.withdraw: Callable[[], None] | None = None
        self.began_s = 0.0
        self.local_s: float | None = None
        # The client for whose quotas it counts; None: there were no quotas when it came.
        self.payer: Client | None = None
        self.span: Span | None = None  # None: it is not traced
        self.throttle_ms = 0  # that its client is to wait, as known at its arrival

    def answer(self, message: kafka.Struct | None) -> None:
        """Give the answer, once; None if there is none (Produce with acks=0). After the connection
        is lost nothing is sent, so a handler need not watch for that."""
        self.connection.answer(self, message)
