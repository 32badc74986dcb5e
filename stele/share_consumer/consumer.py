"""The asyncio share consumer: a member of a share group, whose members take turns at records."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Self, Unpack

from stele.cluster.view import ClusterView
from stele.config import (
    ClientWorld,
    ShareConsumerConfig,
    ShareConsumerOptions,
    poll_limit,
    real_world,
)
from stele.errors import ApiError, ClosedError, ConfigError, ErrorCode
from stele.ids import TopicPartition, encode_uuid
from stele.records import AcknowledgeType, ShareRecord
from stele.share_consumer.leaders import ShareLeaders
from stele.share_consumer.member import ShareMember
from stele.share_consumer.membership import ShareMembership

_ENDLESS_POLL_MS: Final = 60_000


class ShareConsumer:
    """Takes records from a share group, as from a queue. Use it from one event loop, and close it.

    Any number of members share the same partitions. Each record is given to one member, and is
    done when this member accepts it. Each of them can be any record of the topics: order between
    records is not kept.

    Explicitly, where the application says what became of each record:

    >>> async with ShareConsumer(
    ...     "127.0.0.1:9092", group_id="mails", share_acknowledgement_mode="explicit"
    ... ) as consumer:
    ...     consumer.subscribe(["orders"])
    ...     async for record in consumer:
    ...         async with consumer.processing(record):
    ...             await send_mail(record.value)

    Implicitly, where each ``poll`` accepts what was returned before:

    >>> async with ShareConsumer("127.0.0.1:9092", group_id="mails") as consumer:
    ...     consumer.subscribe(["orders"])
    ...     while records := await consumer.poll():
    ...         for record in records:
    ...             await send_mail(record.value)

    **Promise.** Every record is processed at least once. A record is delivered again if its member
    releases it, dies, or loses the connection to the partition's leader before the leader has
    answered the acknowledgement.

    **Locks.** A record belongs to this member for ``share.record.lock.duration.ms``. The client
    renews the lock by itself while the application works, for at most ``lock_renewal_ms`` after the
    poll (default: ``max_poll_interval_ms``). ``AcknowledgeType.RENEW`` renews it, too.

    **A new group begins at the end** of each partition, unless the group's configuration
    ``share.auto.offset.reset`` says ``earliest``.

    **Errors.** Calls raise ConfigError (a wrong argument, or a call that does not fit the mode),
    ClosedError, ApiError (a broker refuses, or REQUEST_TIMED_OUT) and UnreachableError. An
    acknowledgement that does not count is no exception: ``commit`` returns it, and
    ``on_acknowledged`` is called with it.

    Options and their defaults: :class:`stele.config.ShareConsumerConfig`.
    """

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        """``bootstrap_servers``: ``host:port`` of one or more brokers, with commas between them.
        The other brokers are found by asking these.

        ``options`` are the fields of :class:`stele.config.ShareConsumerConfig`; ``group_id`` must
        be one of them. Raises ConfigError for an unknown or invalid option.
        """
        self._config = ShareConsumerConfig.of(bootstrap_servers, options)
        self._world = world or real_world(self._config.client_security())
        self._view = ClusterView(self._config, self._world)
        self._news = asyncio.Event()
        # Kafka's brokers decode the member id of a fetch, and know no other text of a UUID.
        member_id = uuid.UUID(bytes=self._world.rng.randbytes(16), version=4)
        membership = ShareMembership(encode_uuid(member_id.bytes))
        self._leaders = ShareLeaders(self._config, self._view, membership, self._news.set)
        self._member = ShareMember(self._config, self._view, membership, self._changed)
        self._closed = False
        self._leaving: asyncio.Task[None] | None = None  # of the last ``unsubscribe``
        self._closing: asyncio.Task[None] | None = None

    def _changed(self) -> None:
        self._leaders.update()
        self._news.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send the acknowledgements that wait, release everything else, leave the group and release
        all resources.

        With implicit acknowledgement the records of the last poll are released, too: ``commit``
        before, if they are done. Any number of tasks may call it. If the caller is cancelled, the
        consumer is closed all the same. A poll of another task raises ClosedError.
        """
        if self._closing is None:
            self._closed = True
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._news.set()
        try:
            if self._leaving is not None:
                await self._leaving
            await self._leave()
        finally:
            await self._view.close()

    # ------------------------------------------------------------------- subscription

    def subscribe(self, topics: Iterable[str]) -> None:
        """Take records of these topics. The next polls join the group.

        A further call replaces the subscription. Records of other topics that were returned can
        still be acknowledged, and no further ones are returned. Raises ConfigError.

        >>> consumer.subscribe(["orders", "payments"])
        """
        self._check_open()
        if isinstance(topics, str):
            raise ConfigError(f"topics={topics!r} must be a list of names")
        names = list(topics)
        if not names:
            raise ConfigError("topics must name one topic at least: unsubscribe() ends it")
        for name in names:
            self._view.want(name)
        self._member.membership.subscribe(names)
        self._leaders.update()
        self._member.wake()

    async def unsubscribe(self) -> None:
        """Release everything that was not acknowledged, and leave the group. If the caller is
        cancelled, the group is left all the same."""
        self._check_open()
        self._member.membership.subscribe([])
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.get_running_loop().create_task(self._leave())
        await asyncio.shield(self._leaving)

    async def _leave(self) -> None:
        await self._leaders.end()
        await self._member.close()

    async def _has_left(self, timeout_s: float) -> bool:
        """Whether an ``unsubscribe`` that was cancelled has come to its end in this time. What it
        ends would otherwise be begun anew meanwhile."""
        if self._leaving is None or self._leaving.done():
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._leaving)
        except TimeoutError:
            return False
        return True

    def subscription(self) -> list[str]:
        """The topics, in order of their names."""
        return sorted(self._member.membership.topics)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that the coordinator has assigned, as far as their names are known. Other
        members may have the same ones."""
        return self._leaders.assignment()

    # ------------------------------------------------------------------------ reading

    async def poll(
        self, max_records: int | None = None, timeout_ms: float = 1000
    ) -> list[ShareRecord]:
        """Records of the subscribed topics, at most ``max_records`` (at least 1,
        default: ``max_poll_records``).

        Returns as soon as there are any, and an empty list after ``timeout_ms`` without any. With
        implicit acknowledgement it first accepts everything that was returned before. With explicit
        acknowledgement records may be polled while others are still being processed.

        Raises ApiError if a partition cannot be read or the group refuses this member. For a right
        that is missing it is raised once each time a broker refuses. Further polls ask again, and
        return records when the right is back.
        """
        self._check_open()
        limit = poll_limit(max_records, self._config.max_poll_records)
        if not self._member.membership.topics:
            raise ConfigError("there is nothing to poll: call subscribe([topic]) first")
        until_s = self._world.clock.monotonic() + timeout_ms / 1000
        if not await self._has_left(timeout_ms / 1000):
            return []
        if not self._config.is_explicit:
            self._leaders.accept_all()
        poll = object()
        self._member.poll_begins()
        self._leaders.poll_begins(poll, until_s)
        try:
            return await self._polled(limit, until_s)
        finally:
            self._leaders.poll_ends(poll)
            self._member.poll_ends()

    async def _polled(self, limit: int, until_s: float) -> list[ShareRecord]:
        while True:
            self._news.clear()
            self._check_open()
            await self._raise_failure()
            if taken := self._leaders.hand_out(limit):
                return taken
            if (problem := self._leaders.take_problem()) is not None:
                raise problem
            # Without time left this still lets other tasks run, which bring the records.
            if not await self._wait_for_news(until_s - self._world.clock.monotonic()):
                return []

    async def _wait_for_news(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    async def _raise_failure(self) -> None:
        failure = self._leaders.failure or self._member.failure
        if failure is None:
            return
        if isinstance(failure, ApiError) and failure.code.is_denial:
            self._member.begin_anew()
            await self._leaders.begin_anew()
        raise failure

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecord:
        """The next record. Waits for it without a limit. With implicit acknowledgement it accepts
        the one before."""
        while True:
            if records := await self.poll(1, timeout_ms=_ENDLESS_POLL_MS):
                return records[0]

    def put_back(self, records: Iterable[ShareRecord]) -> None:
        """Have the next poll return these records, because they did not reach the application."""
        self._leaders.put_back(list(records))

    # --------------------------------------------------------------- acknowledgements

    def acknowledge(
        self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Say what became of a record that a poll has returned.

        It is sent in the background. ``commit`` waits for the answer. Raises ConfigError with
        implicit acknowledgement.

        >>> consumer.acknowledge(record, AcknowledgeType.REJECT)
        """
        self._check_open()
        self._check_explicit("acknowledge")
        self._leaders.decide(record, AcknowledgeType(kind))

    @asynccontextmanager
    async def processing(self, record: ShareRecord) -> AsyncIterator[ShareRecord]:
        """Accept a record at the end of the block, or release it if the block raises. A record that
        was acknowledged within the block stays so.

        >>> async with consumer.processing(record):
        ...     await send_mail(record.value)
        """
        self.begin_processing()
        try:
            yield record
        except BaseException:
            self.end_processing(record, AcknowledgeType.RELEASE)
            raise
        self.end_processing(record, AcknowledgeType.ACCEPT)

    def begin_processing(self) -> None:
        """What ``processing`` does first: raise ClosedError, or ConfigError with implicit
        acknowledgement."""
        self._check_open()
        self._check_explicit("processing")

    def end_processing(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """What ``processing`` does at its end: decide, unless the application has decided, or the
        consumer is closed and has released the record."""
        if not self._closed and self._leaders.is_undecided(record):
            self._leaders.decide(record, kind)

    def holds(self, record: ShareRecord) -> bool:
        """Whether the record still belongs to this consumer: it was not acknowledged, its lock
        lasts, and its partition has the same leader. Otherwise another member may have it."""
        self._check_open()
        return self._leaders.holds(record)

    async def commit(
        self, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, ApiError | None]:
        """Wait until all acknowledgements are answered. With implicit acknowledgement it first
        accepts everything that was returned.

        Returns for each partition that was acknowledged since the last call None, or the first
        error: then records of it are delivered again. ``timeout_ms`` None means
        ``default_api_timeout_ms``. Raises ApiError REQUEST_TIMED_OUT, or the reason why the
        consumer cannot go on.

        >>> for partition, error in (await consumer.commit()).items():
        ...     if error is not None:
        ...         print(partition, error)
        """
        self._check_open()
        if not self._config.is_explicit:
            self._leaders.accept_all()
        limit_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        until_s = self._world.clock.monotonic() + self._view.left_s(limit_ms / 1000)
        awaited = list(self._leaders.unsettled)
        while any(number in self._leaders.unsettled for number in awaited):
            self._news.clear()
            self._check_open()
            await self._raise_failure()
            if not await self._wait_for_news(until_s - self._world.clock.monotonic()):
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"acknowledgements were not answered within {limit_ms / 1000:g} s; they may "
                    "still count",
                )
        return self._leaders.take_results()

    def _check_explicit(self, what: str) -> None:
        if not self._config.is_explicit:
            raise ConfigError(
                f"{what} needs explicit acknowledgement: "
                "ShareConsumer(..., share_acknowledgement_mode='explicit')"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the share consumer is closed")


__all__ = ["AcknowledgeType", "ShareConsumer", "ShareRecord", "TopicPartition"]
