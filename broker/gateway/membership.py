"""A thin client's membership of a consumer group: what it is told, and what it commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from broker.gateway.refusals import Refusal, refusal_of
from broker.gateway.topic_pattern import TopicPattern
from stele.aio import Consumer
from stele.config import GroupProtocol
from stele.consumer.group.listener import RebalanceListener
from stele.consumer.positions import Progress, RawBatch
from stele.errors import ErrorCode, SteleError
from stele.ids import TopicPartition
from stele.records import OffsetAndMetadata

COMMITS_MAX: Final = 16
"""Commits of one stream that have no answer. Then no more of its messages are read."""
OFFSETS_MAX: Final = 1_000
"""The most offsets of one commit."""
SESSION_TIMEOUT_MS: Final = 10_000
"""Our own client has a longer session: a broker sends heartbeats in time, or is gone."""
_NO_MEMBER: Final = Refusal(
    ErrorCode.UNKNOWN_MEMBER_ID, "the stream is no member of the group yet: no topic matches"
)


class Joining(NamedTuple):
    """The group that the client joins, and the member that it is."""

    group: str
    topics: tuple[str, ...]
    client_id: str
    instance_id: str | None
    protocol: GroupProtocol = "classic"
    pattern: str = ""
    """A regular expression for the topics, in the place of their names."""


class Offsets(NamedTuple):
    """What the client commits."""

    offsets: dict[TopicPartition, OffsetAndMetadata]


class MemberOutlet(Protocol):
    """The news of its group for a member. Each method raises RpcError."""

    async def took(self, partitions: Sequence[TopicPartition]) -> None: ...

    async def gave_up(self, partitions: Sequence[TopicPartition], *, is_lost: bool) -> None: ...

    async def committed(self, refusal: Refusal | None) -> None: ...


class Membership:
    """The membership of one stream."""

    def __init__(
        self,
        consumer: Consumer,
        outlet: MemberOutlet,
        check: Callable[[Offsets], Refusal | None],
        forget: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        """``check`` says why offsets must not be committed. ``forget`` hears of partitions
        whose records may not be sent any more."""
        self._consumer = consumer
        self._outlet = outlet
        self._check = check
        self._forget = forget
        self._commits: asyncio.Queue[Offsets] = asyncio.Queue(COMMITS_MAX)
        self._has_topics = asyncio.Event()
        self._topics: Sequence[str] = ()

    def subscribe(self, topics: Sequence[str]) -> None:
        """The next polls join the group, or tell it that the member reads other topics."""
        if not topics or topics == self._topics:
            return  # a group has no member that reads nothing
        self._topics = topics
        self._has_topics.set()
        listener = RebalanceListener(
            on_partitions_assigned=self._outlet.took,
            on_partitions_revoked=self._giving_up(is_lost=False),
            on_partitions_lost=self._giving_up(is_lost=True),
        )
        self._consumer.subscribe(topics, listener=listener)

    async def follow(self, pattern: TopicPattern) -> None:
        """Subscribe to what the pattern stands for, until it is cancelled. Raises RpcError."""
        while True:
            await pattern.changed()
            self.subscribe(await pattern.topics())

    async def has_topics(self) -> None:
        """Wait until there is a topic to read."""
        await self._has_topics.wait()

    async def stay(self) -> tuple[Sequence[RawBatch], Mapping[TopicPartition, Progress]]:
        """Take part in the group while no record may be sent."""
        self._consumer.pause()
        return await self._consumer.poll_batches_progress(1, timeout_ms=0)

    async def commit(self, offsets: Offsets) -> None:
        """Begin to commit. Waits while too many commits wait."""
        await self._commits.put(offsets)

    async def run_commits(self) -> None:
        """Commit one after the other, until it is cancelled. Raises RpcError."""
        while True:
            offsets = await self._commits.get()
            refusal = self._check(offsets) if self._has_topics.is_set() else _NO_MEMBER
            if refusal is None:
                try:
                    await self._consumer.commit(
                        {(*name,): each for name, each in offsets.offsets.items()}
                    )
                except SteleError as error:
                    refusal = refusal_of(error, accepted=True)
            await self._outlet.committed(refusal)
            self._commits.task_done()

    async def all_committed(self) -> None:
        """Wait until every commit has its answer."""
        await self._commits.join()

    def _giving_up(self, *, is_lost: bool) -> Callable[[list[TopicPartition]], Awaitable[None]]:
        async def give_up(partitions: list[TopicPartition]) -> None:
            self._forget(partitions)
            await self._outlet.gave_up(partitions, is_lost=is_lost)

        return give_up
