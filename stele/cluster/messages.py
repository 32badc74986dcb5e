"""The requests of producer, consumer and administrator to a cluster's brokers, and the answers.

``kafka_plane`` has the questions, and the streams of requests to leaders. These rules hold:

- A question has one answer, or fails with RpcError if there is none. Only the answer tells what a
  broker has decided. ApiError is raised if the question cannot be asked at all, because the broker
  does not speak a version that can express it.
- A link connects by itself and again after a loss. It never repeats a question. Callers pause
  between attempts.
- The requests of a ``LeaderStream`` reach the broker in the order of the calls, and a failed
  request says whether it can have taken effect. A stream of Fetches need not keep their order.
- Records are handed over as buffers. Nobody changes them afterwards.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.world import Buffer, RpcError


class UnsentError(RpcError):
    """The stream broke before the request was handed to it. The request surely took no effect."""


class BrokerAddress(NamedTuple):
    """Where a broker speaks Kafka's protocol, and gRPC. Only an administrator needs the latter."""

    host: str
    port: int
    grpc: tuple[str, int] | None = None


class Leader(NamedTuple):
    broker_id: int  # -1: none
    epoch: int


NO_LEADER = Leader(-1, -1)


def error_code(number: int) -> ErrorCode:
    """The error code of a number. One that this client does not know becomes
    UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


# -------------------------------------------------------------------------------- metadata


@dataclass(slots=True)
class TopicNews:
    """A topic as a broker describes it. Without an error it has all partitions, and an id if the
    cluster has topic ids.
    """

    name: str
    code: ErrorCode
    topic_id: bytes = b""
    partitions: list[tuple[int, Leader]] = field(default_factory=list)


@dataclass(slots=True)
class ClusterNews:
    cluster_id: str
    controller_id: int
    brokers: dict[int, BrokerAddress]
    topics: list[TopicNews] = field(default_factory=list)
    metadata_offset: int = -1
    """The answer with the higher offset is the newer one; -1: the protocol does not say it."""


# ----------------------------------------------------------------------- single questions


class OffsetQuestion(NamedTuple):
    """The first offset at or after a time, or the earliest (-2) or latest (-1) one."""

    name: TopicPartition
    leader_epoch: int
    timestamp_ms: int


class FoundOffset(NamedTuple):
    name: TopicPartition
    code: ErrorCode
    offset: int  # -1: none
    timestamp_ms: int
    leader_epoch: int


class NewProducerId(NamedTuple):
    code: ErrorCode
    producer_id: int
    producer_epoch: int


class CoordinatorKind(enum.IntEnum):
    """The kinds of coordinated ids, with Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


class FoundCoordinator(NamedTuple):
    code: ErrorCode
    message: str
    broker_id: int


# ----------------------------------------------------------------------- leaders' requests


@dataclass(slots=True)
class ProducedPart:
    """One batch of a produce request."""

    topic: str
    topic_id: bytes
    partition: int
    records: Buffer


@dataclass(slots=True)
class ProduceRequest:
    acks: int
    timeout_ms: int
    transactional_id: str | None
    partitions: list[ProducedPart]


@dataclass(slots=True)
class ProduceAnswer:
    """The answer for one batch. ``leader`` acknowledges, or is a hint after a refusal. An
    acknowledgement need not name it. Then a producer may go back to a leader of an earlier epoch,
    which lacks what was acknowledged."""

    topic: str  # empty if it is named by id
    topic_id: bytes
    partition: int
    code: ErrorCode
    message: str
    base_offset: int
    log_append_time_ms: int  # -1: CreateTime
    leader: Leader


@dataclass(slots=True)
class FetchedPart:
    """One partition of a fetch request."""

    topic: str
    topic_id: bytes
    partition: int
    fetch_offset: int
    current_leader_epoch: int  # -1: not checked
    last_fetched_epoch: int  # -1: not known
    max_bytes: int


@dataclass(slots=True)
class FetchRequest:
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    rack: str
    is_committed: bool
    """Read only up to the last stable offset."""
    partitions: list[FetchedPart]


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


@dataclass(slots=True)
class FetchAnswer:
    """The answer for one partition."""

    topic: str  # empty if it is named by id
    topic_id: bytes
    partition: int
    code: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Buffer
    leader: Leader
    diverging_epoch: int = -1  # -1: it does not diverge
    diverging_end_offset: int = -1
    preferred_read_replica: int = -1  # -1: go on here
    aborted_transactions: Sequence[AbortedTransaction] = ()


RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
PartT = TypeVar("PartT")


class LeaderStream(Protocol[RequestT_contra, PartT]):
    """Requests to one broker. The first one opens it. Once it is broken it stays so, and its owner
    opens another. No method waits but ``close``."""

    def request(self, request: RequestT_contra) -> asyncio.Future[Sequence[PartT]]:
        """The future gets the answers for the partitions, or RpcError (UnsentError if the request
        never left)."""
        ...

    def post(self, request: RequestT_contra) -> asyncio.Future[None]:
        """Send a request that has no answer. The future is done once the request was handed
        over."""
        ...

    def take_throttle_s(self) -> float:
        """How long its answers since the last call ask for no more requests, since the client is
        above a quota."""
        ...

    def break_off(self, reason: str) -> None:
        """Give the stream up. Unanswered requests fail. The caller must still await ``close``."""
        ...

    async def close(self) -> None: ...
