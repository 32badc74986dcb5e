"""The coordinator of a group, as a member asks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from stele.config import ConsumerConfig
from stele.consumer.group.reconciling import Heartbeat, HeartbeatAnswer
from stele.consumer.group.requests import (
    CommittedOffset,
    JoinAnswer,
    JoinRequest,
    Standing,
    SyncAnswer,
    SyncRequest,
)
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.records import OffsetAndMetadata

REBALANCE_GRACE_MS: Final = 5_000
"""How much longer than the longest rebalance the answers to JoinGroup and SyncGroup may take."""

HEARTBEAT_S: Final = 10.0
"""How long a heartbeat of the consumer protocol waits for its answer."""


class Coordinator(Protocol):
    """The coordinator of one group, over one plane.

    All methods raise UnreachableError if it cannot be found or does not answer, and ApiError if no
    broker may say which one it is. Answers tell the coordinator's errors.
    """

    @property
    def where(self) -> str:
        """Which broker it is, or why none is known, in words."""
        ...

    async def join(self, request: JoinRequest) -> JoinAnswer: ...

    async def sync(self, request: SyncRequest) -> SyncAnswer: ...

    async def heartbeat(self, standing: Standing) -> ErrorCode: ...

    async def leave(self, standing: Standing, reason: str) -> None: ...

    async def consumer_heartbeat(self, request: Heartbeat) -> HeartbeatAnswer:
        """Of the consumer protocol."""
        ...

    async def commit(
        self, standing: Standing, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> list[CommittedOffset]:
        """Each partition with its error: UNKNOWN_TOPIC_ID if the topic id of an offset belongs to
        no topic. Raises ApiError if all are refused at once."""
        ...

    async def committed(
        self, partitions: Sequence[TopicPartition], topic_ids: Mapping[str, bytes]
    ) -> list[CommittedOffset]:
        """``topic_ids``: the topics that are meant, by name. Of a name without an id, any topic is.
        Raises ApiError if all are refused at once."""
        ...


def rebalance_s(config: ConsumerConfig) -> float:
    """How long JoinGroup and SyncGroup wait for their answers."""
    return (config.max_poll_interval_ms + REBALANCE_GRACE_MS) / 1000


def heartbeat_s(config: ConsumerConfig) -> float:
    """How long a heartbeat of the classic protocol waits: another one must fit into the session."""
    return min(config.request_timeout_ms, config.session_timeout_ms / 3) / 1000


def consumer_heartbeat_s(config: ConsumerConfig) -> float:
    """That of the consumer protocol, where only the coordinator knows the session."""
    return min(config.request_timeout_ms / 1000, HEARTBEAT_S)
