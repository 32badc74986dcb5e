"""The asyncio consumer. A group assigns its partitions and keeps its offsets, or the user does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from stele.cluster.view import ClusterView
from stele.config import ClientWorld, ConsumerConfig, ConsumerOptions, poll_limit, real_world
from stele.consumer.arguments import (
    OffsetArgument,
    PartitionArgument,
    given_offsets,
    given_times,
)
from stele.consumer.assigned import AssignedPartitions
from stele.consumer.group.coordinator import Coordinator
from stele.consumer.group.group import ConsumerGroup
from stele.consumer.group.listener import RebalanceListener
from stele.consumer.group.topic_choice import TopicChoice
from stele.consumer.offset_lookup import OffsetLookup
from stele.consumer.polled import ConsumerRecords, PolledRows, rows_maker, table_of
from stele.consumer.polls import Polls
from stele.consumer.positions import EARLIEST, LATEST, PartitionPosition, Progress, RawBatch
from stele.consumer.reasons import with_reason
from stele.errors import ApiError, ClosedError, ConfigError, ErrorCode
from stele.ids import TopicPartition
from stele.records import ConsumerRecord, GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp

if TYPE_CHECKING:
    import pyarrow as pa

Taken = TypeVar("Taken")


class Consumer:
    """Reads records. Use it from one event loop, and close it.

    With partitions that the caller chooses:

    >>> async with Consumer("127.0.0.1:9092", auto_offset_reset="earliest") as consumer:
    ...     consumer.assign([("orders", 0)])
    ...     records = await consumer.poll(timeout_ms=1000)

    As a member of a group, whose members share the partitions of topics:

    >>> async with Consumer("127.0.0.1:9092", group_id="billing") as consumer:
    ...     consumer.subscribe(["orders"])
    ...     async for record in consumer:
    ...         handle(record)

    **Positions.** The position of a partition is the offset of the next record to be returned. It
    begins at the offset that the group has committed, and otherwise where ``auto_offset_reset``
    says. With a group and ``enable_auto_commit`` the consumer commits what earlier polls returned.

    **Errors.** If a partition cannot be read, each ``poll`` raises the reason until a ``seek``. The
    other calls raise ConfigError (a wrong argument, or a call that needs a group), ClosedError,
    ApiError (a broker refuses, or REQUEST_TIMED_OUT) and UnreachableError.

    A partition is a pair ``(topic, number)``, also as a TopicPartition. Options and their defaults:
    :class:`stele.config.ConsumerConfig`.
    """

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """``bootstrap_servers``: ``host:port`` of one or more brokers, with commas between them.
        The other brokers are found by asking these.

        ``options`` are the fields of :class:`stele.config.ConsumerConfig`. Raises ConfigError for
        an unknown or invalid option.
        """
        self._config = ConsumerConfig.of(bootstrap_servers, options)
        self._world = world or real_world(self._config.client_security())
        self._view = ClusterView(self._config, self._world)
        self._lookup = OffsetLookup(self._view, is_committed=self._config.reads_committed)
        self._assigned = AssignedPartitions(self._config, self._view)
        self._positions = self._assigned.positions
        self._fetcher = self._assigned.fetcher
        self._group: ConsumerGroup | None = None
        if (group_id := self._config.group_id) is not None:
            coordinator = Coordinator(self._config, self._view, group_id)
            self._group = ConsumerGroup(
                self._config, self._view, coordinator, group_id, self._assigned
            )
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._polls = Polls(self._group)

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
        """Commit, leave the group, stop fetching and release all resources.

        Any number of tasks may call it: all of them wait for the one end. If the caller is
        cancelled, the consumer is closed all the same. A poll of another task raises ClosedError.
        """
        if self._polls.has_current_task:
            raise RuntimeError("a rebalance listener cannot close its consumer")
        if self._closing is None:
            self._closed = True
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._fetcher.announce()
        try:
            await self._polls.ended()
            if self._group is not None:
                await self._group.close()
        finally:
            await self._fetcher.close()
            await self._view.close()

    # ------------------------------------------------------------------- subscription

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics as a member of the group, or all topics whose whole name matches a
        compiled pattern.

        The next polls join the group. A further call replaces the subscription and its listener.
        Raises ConfigError without a ``group_id`` or after ``assign``.

        >>> consumer.subscribe(["orders", "payments"])
        >>> consumer.subscribe(re.compile("orders-.*"), listener=RebalanceListener(on_assigned))
        """
        group = self._needed_group("subscribe")
        if self._positions and not group.is_subscribed:
            raise ConfigError("the consumer has assigned partitions: unsubscribe() first")
        if isinstance(topics, str):
            raise ConfigError(f"topics={topics!r} must be a list of names, or a compiled pattern")
        choice = TopicChoice(topics, self._view)
        if choice.names is not None and not choice.names:
            raise ConfigError("topics must name one topic at least: unsubscribe() ends it")
        group.subscribe(choice, listener)

    async def unsubscribe(self) -> None:
        """Commit and leave the group, or forget the assigned partitions."""
        self._check_open()
        if self._group is not None:
            await self._group.unsubscribe("the consumer has unsubscribed")
        self._assigned.drop(list(self._positions))

    # --------------------------------------------------------------------- assignment

    def assign(self, partitions: Iterable[PartitionArgument]) -> None:
        """Read exactly these partitions from now on.

        A partition that stays keeps its position. A new one begins at the offset that the group has
        committed, if there is a group, and otherwise where ``auto_offset_reset`` says. Raises
        ConfigError after ``subscribe``."""
        self._check_open()
        if self._group is not None and self._group.is_subscribed:
            raise ConfigError("the group assigns the partitions: unsubscribe() first")
        self._assigned.replace(TopicPartition(*each) for each in partitions)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that the consumer reads now."""
        return list(self._positions)

    def seek(self, topic: str, partition: int, offset: int, leader_epoch: int = -1) -> None:
        """Go to an offset: the next record returned is the one at ``offset``, or the first one
        after it.

        ``leader_epoch``: the leader epoch of the last record before ``offset``, if the caller has
        stored it. The consumer then notices if this record has vanished since (KIP-320).

        >>> consumer.seek("orders", 0, record.offset + 1, leader_epoch=record.leader_epoch)
        """
        if offset < 0:
            raise ConfigError(f"offset {offset} must not be negative: use seek_to_end")
        self._moved(topic, partition).seek(offset, leader_epoch)
        self._fetcher.wake()

    def seek_to_beginning(self, *partitions: PartitionArgument) -> None:
        """Go to the log start offset as it is when the next record is needed. Without arguments: in
        all assigned partitions."""
        for name in partitions or self.assignment():
            self._moved(*name).look_up(EARLIEST)
        self._fetcher.wake()

    def seek_to_end(self, *partitions: PartitionArgument) -> None:
        """Go to the high watermark as it is when the next record is needed. Without arguments: in
        all assigned partitions."""
        for name in partitions or self.assignment():
            self._moved(*name).look_up(LATEST)
        self._fetcher.wake()

    def fetch_until(self, topic: str, partition: int, end_offset: int) -> None:
        """Fetch nothing of a partition from ``end_offset`` on, until it is assigned anew or another
        end is set.

        For readers of a range of offsets: otherwise the consumer fetches ahead beyond it. The batch
        with the last offset of the range comes whole. If no other partition is assigned, the range
        is fetched ahead up to ``prefetch_bytes``. Raises ConfigError for a partition that is not
        assigned.

        >>> consumer.fetch_until("orders", 0, 5000)
        """
        self._position_of(topic, partition).fetch_until = end_offset
        self._fetcher.wake()

    def pause(self, *partitions: PartitionArgument) -> None:
        """Return no records of these partitions until ``resume``. Records that were fetched are
        kept. Without arguments: of all assigned partitions."""
        for name in partitions or self.assignment():
            self._position_of(*name).paused = True

    def resume(self, *partitions: PartitionArgument) -> None:
        """Return records of these partitions again. Without arguments: of all partitions."""
        for name in partitions or self.assignment():
            self._position_of(*name).paused = False
        self._fetcher.wake()

    def paused(self) -> list[TopicPartition]:
        """The assigned partitions that are paused."""
        return [name for name, position in self._positions.items() if position.paused]

    # ------------------------------------------------------------------------ reading

    async def poll(
        self, max_records: int | None = None, timeout_ms: float = 1000
    ) -> ConsumerRecords:
        """Records of the assigned partitions, at most ``max_records`` (at least 1,
        default: ``max_poll_records``).

        Returns as soon as there are any, and an empty list after ``timeout_ms`` without any.
        Records of a partition are in order. The list can become columns: ``to_arrow()``,
        ``to_pandas()``.

        Raises the error that stops a partition, again at each poll until a seek:
        OffsetOutOfRangeError, LogTruncationError, UnreadableBatchError, ApiError.
        UNKNOWN_TOPIC_OR_PARTITION, for a partition that was missing for ``default_api_timeout_ms``,
        ends when a partition of that name exists again. TOPIC_AUTHORIZATION_FAILED and
        GROUP_AUTHORIZATION_FAILED, for a right that is missing, are raised once each time a broker
        refuses. Further polls ask again, and return records when the right is back.

        A member of a group joins, gives partitions up and gets others within its polls. Raises
        FencedInstanceError or ApiError when it cannot be a member. A member without the right READ
        of its group loses its partitions, and reads nothing outside of the group."""
        self._check_open()
        limit = poll_limit(max_records, self._config.max_poll_records)
        with self._polls.one():
            polled = await self._polled(lambda: self._assigned.hand_out(limit) or None, timeout_ms)
        return ConsumerRecords(polled)

    async def poll_arrow(
        self,
        max_bytes: int = 4 * 1024 * 1024,
        timeout_ms: float = 1000,
        *,
        include_headers: bool = True,
    ) -> pa.Table:
        """As ``poll``, but a table of Apache Arrow, with the columns of Spark's Kafka source. No
        record becomes a Python object.

        The rows are whole batches of about ``max_bytes`` bytes, one at least. They are ordered
        within a partition, and those of a partition follow each other. The table has no rows after
        ``timeout_ms`` without records. Without ``include_headers`` it has no such column. Raises
        ConfigError without the extra ``arrow``, and as ``poll`` does.

        >>> table = await consumer.poll_arrow()
        >>> frame = table.to_pandas()
        """
        polled = await self.poll_rows(max_bytes, timeout_ms, include_headers=include_headers)
        return table_of(polled, include_headers=include_headers)

    async def poll_rows(
        self, max_bytes: int, timeout_ms: float, *, include_headers: bool
    ) -> list[PolledRows]:
        """As ``poll_arrow``, with the position before the poll."""
        self._check_open()
        rows_of = rows_maker(include_headers=include_headers, check_crcs=self._config.check_crcs)
        with self._polls.one():
            return await self._polled(
                lambda: self._assigned.hand_out_rows(max_bytes, rows_of) or None, timeout_ms
            )

    async def poll_batches_progress(
        self, max_bytes: int, timeout_ms: float
    ) -> tuple[list[RawBatch], dict[TopicPartition, Progress]]:
        """As ``poll_batches``, also for members of groups, with the progress of partitions.

        A partition is in the second value if its position has moved since the last call or seek, or
        is found to be at the end of the log. The call returns without batches as soon as there is
        such a partition: control records and compaction leave offsets without a record.
        """
        self._check_open()
        moved: dict[TopicPartition, Progress] = {}

        def hand_out() -> list[RawBatch] | None:
            batches = self._assigned.hand_out_batches(max_bytes)
            moved.update(self._assigned.take_progress())
            return batches or [] if batches or moved else None

        with self._polls.one():
            polled = await self._polled(hand_out, timeout_ms)
        return polled, moved

    async def poll_batches(
        self, max_bytes: int = 4 * 1024 * 1024, timeout_ms: float = 1000
    ) -> list[RawBatch]:
        """As ``poll``, but whole record batches that are neither checked nor decompressed: about
        ``max_bytes`` bytes of one partition.

        The position moves behind them. If there were only batches that hold no records for the
        consumer, the list is empty at once and the position has moved. For readers that make
        columns of batches, such as ``stele.column_decoder``. Raises ConfigError with a group.
        """
        self._check_open()
        if self._group is not None:
            raise ConfigError("poll_batches is for assigned partitions without a group")
        return await self._polled(lambda: self._assigned.hand_out_batches(max_bytes), timeout_ms)

    async def _polled(
        self, hand_out: Callable[[], list[Taken] | None], timeout_ms: float
    ) -> list[Taken]:
        """The result of ``hand_out``, as soon as it is not None."""
        if not self._positions and not (self._group is not None and self._group.is_subscribed):
            way = "assign([(topic, partition)])"
            if self._group is not None:
                way = f"subscribe([topic]) or {way}"
            raise ConfigError(f"there is nothing to poll: call {way} first")
        self._fetcher.start()
        deadline = self._world.clock.monotonic() + timeout_ms / 1000
        while True:
            self._fetcher.forget_news()
            if self._group is not None:
                await self._group.go_on()
            self._raise_error()
            # closed within ``go_on``: records that are handed out now are not committed
            self._check_open()
            if (taken := hand_out()) is not None:
                return taken
            # Without time left this still lets other tasks run, which bring the records.
            if not await self._fetcher.wait_for_news(deadline - self._world.clock.monotonic()):
                return []
            self._check_open()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record. Waits for it without a limit."""
        while True:
            if records := await self.poll(1, timeout_ms=60_000):
                return records[0]

    def put_back(self, offsets: Mapping[PartitionArgument, int]) -> None:
        """Go back to these offsets, because records that a poll has returned did not reach the
        application. It is as if the poll had not returned them. Partitions that are not assigned
        any more are passed over.
        """
        self._assigned.put_back({TopicPartition(*name): each for name, each in offsets.items()})

    def _raise_error(self) -> None:
        if self._fetcher.failure is not None:
            raise self._fetcher.failure
        if (error := self._assigned.take_error()) is not None:
            raise error

    def why(self, *partitions: PartitionArgument) -> dict[TopicPartition, str]:
        """For each partition one line that says why it gives no records now.

        Examples of reasons: paused, at the end, no known leader, a broker without an answer, a
        rebalance. Without arguments: of all assigned partitions, and of each subscribed topic
        without an assigned partition, as partition -1.
        """
        self._check_open()
        group = self._group
        rebalance = "" if group is None else group.why()
        waits_for = "" if group is None else group.start_waits_for
        names = [TopicPartition(*each) for each in partitions] or list(self._positions)
        reasons = {}
        for name in names:
            position = self._positions.get(name)
            if position is None:
                reasons[name] = with_reason("not assigned to this consumer", rebalance)
            else:
                reasons[name] = with_reason(self._fetcher.why(position, waits_for), rebalance)
        if group is not None and not partitions:
            for topic in group.topics - {name.topic for name in self._positions}:
                reasons[TopicPartition(topic, -1)] = with_reason(
                    "no partition is assigned", rebalance
                )
        return reasons

    # ------------------------------------------------------------------------ commits

    async def commit(
        self,
        offsets: Mapping[PartitionArgument, OffsetArgument] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit these offsets for the group, or the positions of all partitions.

        The offset of a partition names the next record to read. ``timeout_ms`` None means
        ``default_api_timeout_ms``, here and in the calls below.

        Raises CommitFailedError if the group has gone on without this member or the topic was
        deleted, ApiError, UnreachableError.

        >>> await consumer.commit({("orders", 0): record.offset + 1})
        """
        group = self._needed_group("commit")
        given = None if offsets is None else given_offsets(offsets)
        await group.commit(given, self._limit_s(timeout_ms))

    def commit_async(
        self, offsets: Mapping[PartitionArgument, OffsetArgument] | None = None
    ) -> asyncio.Future[None]:
        """Begin a ``commit`` and return its future. Without offsets: the positions at this call.
        Commits are made in the order in which they were begun. ``close`` does not wait for them.
        """
        group = self._needed_group("commit_async")
        given = None if offsets is None else given_offsets(offsets)
        commit = group.begin_commit(given)
        commit.add_done_callback(_look_at)
        return commit

    async def committed(
        self, partitions: Iterable[PartitionArgument], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The offset that the group has committed for each partition. None: it has committed none.
        Raises ApiError, UnreachableError.
        """
        group = self._needed_group("committed")
        names = [TopicPartition(*each) for each in partitions]
        return await group.committed(names, self._limit_s(timeout_ms))

    @property
    def commits_by_itself(self) -> bool:
        """Whether the consumer commits offsets in the background: it has a group and
        ``enable_auto_commit``.
        """
        return self._config.enable_auto_commit and self._group is not None

    def consumed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """For each partition the offset after the last returned record, as ``commit`` takes it.
        Partitions whose position is not known yet are left out.
        """
        return self._needed_group("consumed_offsets").consumed()

    def seek_to_committed(self, *partitions: PartitionArgument) -> None:
        """Go back to the offsets that the group has committed, for example after an aborted
        transaction. Without arguments: in all assigned partitions.
        """
        self._needed_group("seek_to_committed")
        for name in partitions or self.assignment():
            self._position_of(*name).await_committed()
        self._fetcher.announce()

    def group_metadata(self) -> GroupMetadata:
        """The group and this member of it, for ``Producer.send_group_offsets``."""
        return self._needed_group("group_metadata").metadata()

    def _needed_group(self, what: str) -> ConsumerGroup:
        self._check_open()
        if self._group is None:
            raise ConfigError(f"{what} needs a group: Consumer(..., group_id='a-name')")
        return self._group

    # ------------------------------------------------------------------------ offsets

    def _limit_s(self, timeout_ms: float | None) -> float:
        limit_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return self._view.left_s(limit_ms / 1000)

    async def position(self, topic: str, partition: int, *, timeout_ms: float | None = None) -> int:
        """The offset of the next record to be returned. It is looked up if it is not known yet.

        Raises ApiError REQUEST_TIMED_OUT after ``timeout_ms``, and the error that stops the
        partition.
        """
        position = self._position_of(topic, partition)
        deadline = self._world.clock.monotonic() + self._limit_s(timeout_ms)
        self._fetcher.start()
        while position.offset is None:
            self._check_open()
            self._fetcher.forget_news()
            if self._group is not None:
                self._group.find_starts()
            if (error := position.stopped_by) is not None:
                self._assigned.forget_denials(error)
                raise error
            self._fetcher.wake()
            left_s = deadline - self._world.clock.monotonic()
            if left_s <= 0:
                name = TopicPartition(topic, partition)
                text = f"the position of {name} is not known in time: {self.why(name)[name]}"
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text)
            await self._fetcher.wait_for_news(min(1.0, left_s))
        return position.offset

    def known_position(self, topic: str, partition: int) -> int | None:
        """The offset of the next record to be returned. None while it is not known."""
        return self._position_of(topic, partition).offset

    async def beginning_offsets(
        self, partitions: Iterable[PartitionArgument], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The log start offset of each partition: the offset of the oldest record that may still be
        there. Raises ApiError, UnreachableError.
        """
        return await self._offsets_at(partitions, EARLIEST, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[PartitionArgument], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The high watermark of each partition, or with ``read_committed`` the last stable offset.
        A consumer at this offset has read everything there is for it. Raises ApiError,
        UnreachableError.
        """
        return await self._offsets_at(partitions, LATEST, timeout_ms)

    async def _offsets_at(
        self, partitions: Iterable[PartitionArgument], timestamp: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        self._check_open()
        wanted = {TopicPartition(*name): timestamp for name in partitions}
        found = await self._lookup.offsets(wanted, self._limit_s(timeout_ms))
        return {name: answer.offset for name, answer in found.items()}

    async def offsets_for_times(
        self,
        timestamps_ms: Mapping[PartitionArgument, int],
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time, in milliseconds since 1970. None
        if there is no such record.

        Raises ConfigError for a negative time, ApiError, UnreachableError.

        >>> await consumer.offsets_for_times({("orders", 0): 1_767_225_600_000})
        """
        self._check_open()
        wanted = given_times(timestamps_ms)
        found = await self._lookup.offsets(wanted, self._limit_s(timeout_ms))
        return {name: each if each.offset >= 0 else None for name, each in found.items()}

    async def partitions_for(self, topic: str, *, timeout_ms: float | None = None) -> list[int]:
        """The numbers of the topic's partitions. Waits until the topic is known. Raises ApiError
        UNKNOWN_TOPIC_OR_PARTITION, UnreachableError.
        """
        self._check_open()
        view = await self._view.wait_for_topic(topic, self._limit_s(timeout_ms))
        return sorted(view.partitions)

    @property
    def throttled_s(self) -> float:
        """How many seconds brokers have let this client wait, because it was above a quota of
        consumers: the sum over all brokers.
        """
        return self._fetcher.throttled_s

    def topic_id(self, topic: str) -> bytes:
        """The id of the topic that last had this name, as far as this client knows. It is empty if
        the client knows none. A topic that is deleted and made anew has another id.
        """
        known = self._view.topic(topic)
        return known.topic_id if known else b""

    def read_topic_id(self, topic: str, partition: int) -> bytes:
        """The id of the topic of the last record that was returned from the partition. It is empty
        if there is no such record, or if the brokers give no ids.
        """
        position = self._positions.get(TopicPartition(topic, partition))
        return position.read_id if position else b""

    def _position_of(self, topic: str, partition: int) -> PartitionPosition:
        self._check_open()
        position = self._positions.get(TopicPartition(topic, partition))
        if position is None:
            raise ConfigError(f"{topic}-{partition} is not assigned to this consumer")
        return position

    def _moved(self, topic: str, partition: int) -> PartitionPosition:
        """A position that the application moves, in whichever topic has the name."""
        position = self._position_of(topic, partition)
        position.read_id = b""
        return position

    def _check_open(self) -> None:
        # While the consumer closes, its rebalance listener may commit.
        if self._closed and not (self._group is not None and self._group.is_rebalancing):
            raise ClosedError("the consumer is closed")


def _look_at(commit: asyncio.Future[None]) -> None:
    """A commit without a waiting caller may fail unnoticed."""
    if not commit.cancelled():
        commit.exception()


__all__ = ["Consumer", "ConsumerRecord", "ConsumerRecords", "OffsetAndTimestamp", "TopicPartition"]
