"""The asyncio consumer. A group assigns its partitions and keeps its offsets, or the user does."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar, Unpack

from stele.cluster.view import ClusterView
from stele.config import ClientWorld, ConsumerConfig, ConsumerOptions, real_world
from stele.consumer.assigned import AssignedPartitions
from stele.consumer.group.group import LAST_COMMIT_S, ConsumerGroup, coordinator_of
from stele.consumer.group.listener import RebalanceListener
from stele.consumer.group.topic_choice import TopicChoice
from stele.consumer.offset_lookup import OffsetLookup
from stele.consumer.polled import ConsumerRecords
from stele.consumer.positions import EARLIEST, LATEST, PartitionPosition, Progress, RawBatch
from stele.errors import ApiError, ClosedError, ConfigError, ErrorCode, UnreadableBatchError
from stele.ids import TopicPartition
from stele.records import ConsumerRecord, GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp

log = logging.getLogger(__name__)

PartitionArgument = tuple[str, int]
OffsetArgument = int | OffsetAndMetadata
Taken = TypeVar("Taken")


class Consumer:
    """Reads records. Use it from one event loop.

    >>> async with Consumer("127.0.0.1:9092", auto_offset_reset="earliest") as consumer:
    ...     consumer.assign([("orders", 0)])
    ...     records = await consumer.poll(timeout_ms=1000)

    With a group, whose members share the partitions of topics:

    >>> async with Consumer("127.0.0.1:9092", group_id="billing") as consumer:
    ...     consumer.subscribe(["orders"])
    ...     async for record in consumer:
    ...         handle(record)

    Options and their defaults: :class:`stele.config.ConsumerConfig`.
    """

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._config = ConsumerConfig.of(bootstrap_servers, options)
        self._world = world or real_world()
        self._view = ClusterView(self._config, self._world)
        self._lookup = OffsetLookup(self._view, is_committed=self._config.reads_committed)
        self._assigned = AssignedPartitions(self._config, self._view)
        self._positions = self._assigned.positions
        self._fetcher = self._assigned.fetcher
        self._group: ConsumerGroup | None = None
        if (group_id := self._config.group_id) is not None:
            coordinator = coordinator_of(self._config, self._view, group_id)
            self._group = ConsumerGroup(
                self._config, self._view, coordinator, group_id, self._assigned
            )
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        # The tasks that are in ``poll``. Closing waits for them: a rebalance must not run twice.
        self._polling: dict[asyncio.Task[object], None] = {}
        self._polls_ended = asyncio.Event()

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
        """Commit and leave the group, stop fetching and release all resources.

        Any number of tasks may call it: all of them wait for the one end. If the caller is
        cancelled, the consumer is closed all the same. A poll of another task raises ClosedError.
        """
        if asyncio.current_task() in self._polling:
            raise RuntimeError("a rebalance listener cannot close its consumer")
        if self._closing is None:
            self._closed = True
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._fetcher.announce()
        try:
            await self._await_polls()
            if self._group is not None:
                await self._group.close()
        finally:
            await self._fetcher.close()
            await self._view.close()

    async def _await_polls(self) -> None:
        """A poll may be within a rebalance: it ends soon, unless the application's function
        hangs."""
        try:
            async with asyncio.timeout(LAST_COMMIT_S):
                while self._polling:
                    self._polls_ended.clear()
                    await self._polls_ended.wait()
        except TimeoutError:
            log.warning("closing the consumer although a rebalance listener has not returned")

    # ------------------------------------------------------------------- subscription

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics as a member of the group, or all whose whole name a pattern matches.
        The next polls join the group. Replaces an earlier subscription and its listener."""
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
        """Leave the group, having committed, or forget the assigned partitions."""
        self._check_open()
        if self._group is not None:
            await self._group.unsubscribe("the consumer has unsubscribed")
        self._assigned.drop(list(self._positions))

    # --------------------------------------------------------------------- assignment

    def assign(self, partitions: Iterable[PartitionArgument]) -> None:
        """Read exactly these partitions from now on. Partitions that stay keep their position.
        Others begin at the offset that the group has committed, if there is a group."""
        self._check_open()
        if self._group is not None and self._group.is_subscribed:
            raise ConfigError("the group assigns the partitions: unsubscribe() first")
        self._assigned.replace(TopicPartition(*each) for each in partitions)

    def assignment(self) -> list[TopicPartition]:
        return list(self._positions)

    def seek(self, topic: str, partition: int, offset: int, leader_epoch: int = -1) -> None:
        """The next record returned is the one at ``offset``, or the first one after it.

        ``leader_epoch``: that of the last record that was read before, if the caller stored it with
        the offset. If that record has vanished since, the consumer finds out (KIP-320).
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

    def pause(self, *partitions: PartitionArgument) -> None:
        """Return no records of these partitions until ``resume``. What is fetched stays. Without
        arguments: of all."""
        for name in partitions or self.assignment():
            self._position_of(*name).paused = True

    def resume(self, *partitions: PartitionArgument) -> None:
        for name in partitions or self.assignment():
            self._position_of(*name).paused = False
        self._fetcher.wake()

    def paused(self) -> list[TopicPartition]:
        return [name for name, position in self._positions.items() if position.paused]

    # ------------------------------------------------------------------------ reading

    async def poll(
        self, max_records: int | None = None, timeout_ms: float = 1000
    ) -> ConsumerRecords:
        """Records of the assigned partitions, at most ``max_records`` (``max_poll_records``).

        Returns as soon as there are any, and an empty list after ``timeout_ms`` without any.
        Records of a partition are in order. Raises the error that stops a partition, again at each
        poll until a seek: OffsetOutOfRangeError, LogTruncationError, UnreadableBatchError,
        ApiError. UNKNOWN_TOPIC_OR_PARTITION, for a partition that was missing for
        ``default_api_timeout_ms``, ends when a partition of that name exists again.

        A member of a group joins, gives partitions up and gets others within its polls. Raises
        FencedInstanceError, ApiError when it cannot be a member.
        """
        self._check_open()
        limit = max_records or self._config.max_poll_records
        with self._in_poll():
            polled = await self._polled(lambda: self._hand_out(limit) or None, timeout_ms)
        return ConsumerRecords(polled)

    async def poll_progress(
        self, max_records: int | None = None, timeout_ms: float = 1000
    ) -> tuple[ConsumerRecords, dict[TopicPartition, Progress]]:
        """As ``poll``, with the progress of the partitions whose position has moved since the last
        call or seek, or is found to be at the end of the log. It returns without records as soon as
        there is such a partition: control records and compaction leave offsets without a record."""
        self._check_open()
        limit = max_records or self._config.max_poll_records
        moved: dict[TopicPartition, Progress] = {}

        def hand_out() -> list[ConsumerRecord] | None:
            records = self._hand_out(limit)
            moved.update(self._take_progress())
            return records if records or moved else None

        with self._in_poll():
            polled = await self._polled(hand_out, timeout_ms)
        return ConsumerRecords(polled), moved

    def _take_progress(self) -> Iterator[tuple[TopicPartition, Progress]]:
        is_committed = self._config.reads_committed
        for name, position in self._positions.items():
            progress = position.take_progress(is_committed=is_committed)
            if progress is not None:
                yield name, progress

    @contextmanager
    def _in_poll(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._polling[task] = None
        if self._group is not None:
            self._group.poll_begins()
        try:
            yield
        finally:
            if self._group is not None:
                self._group.poll_ends()
            self._polling.pop(task, None)
            self._polls_ended.set()

    async def poll_batches(
        self, max_bytes: int = 4 * 1024 * 1024, timeout_ms: float = 1000
    ) -> list[RawBatch]:
        """As ``poll``, but whole record batches that are neither checked nor decompressed, some
        ``max_bytes`` of one partition. The position moves behind them. If there were only batches
        that hold no records for the consumer, the list is empty at once and the position has moved.

        For readers that make columns of batches, such as ``stele.column_decoder``.
        """
        self._check_open()
        if self._group is not None:
            raise ConfigError("poll_batches is for assigned partitions without a group")
        return await self._polled(lambda: self._hand_out_batches(max_bytes), timeout_ms)

    async def _polled(
        self, hand_out: Callable[[], list[Taken] | None], timeout_ms: float
    ) -> list[Taken]:
        """What ``hand_out`` gives, as soon as it is not None."""
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
            self._check_open()  # closed within ``go_on``: what is handed out now is not committed
            if (taken := hand_out()) is not None:
                return taken
            left_s = deadline - self._world.clock.monotonic()
            if left_s <= 0 or not await self._fetcher.wait_for_news(left_s):
                return []
            self._check_open()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record. Waits for it without a limit."""
        while True:
            if records := await self.poll(1, timeout_ms=60_000):
                return records[0]

    def _hand_out(self, limit: int) -> list[ConsumerRecord]:
        taken: list[ConsumerRecord] = []
        served: list[TopicPartition] = []
        for name, position in self._positions.items():
            if position.has_buffer and not position.paused:
                try:
                    records = position.hand_out(
                        limit - len(taken), check_crcs=self._config.check_crcs
                    )
                except UnreadableBatchError as error:
                    # Raised by the next poll: records of other partitions are not lost.
                    position.error = error
                    self._fetcher.announce()
                    continue
                taken = taken + records if taken else records
                served.append(name)
                if len(taken) >= limit:
                    break
        if served:
            for name in served:  # moved behind the others, with which the next poll begins
                self._positions[name] = self._positions.pop(name)
            self._fetcher.wake()
        return taken

    def _hand_out_batches(self, max_bytes: int) -> list[RawBatch] | None:
        for name, position in self._positions.items():
            if position.has_buffer and not position.paused:
                taken = position.hand_out_batches(max_bytes)
                self._positions[name] = self._positions.pop(name)
                self._fetcher.wake()
                return taken
        return None

    def put_back(self, offsets: Mapping[PartitionArgument, int]) -> None:
        """Have polls return the records from these offsets on again. Those that a poll has returned
        did not reach the application, as if it had never been called. Partitions that are not
        assigned any more are passed over."""
        for name, offset in offsets.items():
            position = self._positions.get(TopicPartition(*name))
            if position is not None:
                position.return_to(offset)
        self._fetcher.wake()

    def _raise_error(self) -> None:
        if self._fetcher.failure is not None:
            raise self._fetcher.failure
        for position in self._positions.values():
            if (error := position.stopped_by) is not None and not position.paused:
                raise error

    def why(self, *partitions: PartitionArgument) -> dict[TopicPartition, str]:
        """For each partition one line that says why it gives no records now. Without arguments: of
        all assigned partitions, and of each subscribed topic of which none is assigned, under the
        partition -1."""
        self._check_open()
        group = self._group
        rebalance = "" if group is None else group.why()
        waits_for = "" if group is None else group.start_waits_for
        names = [TopicPartition(*each) for each in partitions] or list(self._positions)
        reasons = {}
        for name in names:
            position = self._positions.get(name)
            if position is None:
                reasons[name] = _and("not assigned to this consumer", rebalance)
            else:
                reasons[name] = _and(self._fetcher.why(position, waits_for), rebalance)
        if group is not None and not partitions:
            for topic in group.topics - {name.topic for name in self._positions}:
                reasons[TopicPartition(topic, -1)] = _and("no partition is assigned", rebalance)
        return reasons

    # ------------------------------------------------------------------------ commits

    # ``timeout_ms`` of all that follow: None means ``default_api_timeout_ms``.

    async def commit(
        self,
        offsets: Mapping[PartitionArgument, OffsetArgument] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit these offsets for the group, or the positions of all partitions. The offset of a
        partition is that of the next record to read.

        Raises CommitFailedError if the group has gone on without this member, ApiError,
        UnreachableError.
        """
        group = self._needed_group("commit")
        given = None if offsets is None else _offsets(offsets)
        await group.commit(given, self._limit_s(timeout_ms))

    def commit_async(
        self, offsets: Mapping[PartitionArgument, OffsetArgument] | None = None
    ) -> asyncio.Future[None]:
        """Begin the same, and do not wait. Commits are made in the order in which they were begun.
        ``close`` does not wait for them."""
        group = self._needed_group("commit_async")
        given = None if offsets is None else _offsets(offsets)
        commit = asyncio.ensure_future(group.commit(given))
        commit.add_done_callback(_look_at)
        return commit

    async def committed(
        self, partitions: Iterable[PartitionArgument], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where that is nothing."""
        group = self._needed_group("committed")
        names = [TopicPartition(*each) for each in partitions]
        return await group.committed(names, self._limit_s(timeout_ms))

    @property
    def commits_by_itself(self) -> bool:
        """Whether it commits offsets in the background (``enable_auto_commit``)."""
        return self._config.enable_auto_commit and self._group is not None

    def consumed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where the application is, in each partition whose position is known: behind the last
        record that was returned."""
        return self._needed_group("consumed_offsets").consumed()

    def seek_to_committed(self, *partitions: PartitionArgument) -> None:
        """Go back to what the group has committed, to read again what did not count. Without
        arguments: in all assigned partitions."""
        self._needed_group("seek_to_committed")
        for name in partitions or self.assignment():
            self._position_of(*name).await_committed()
        self._fetcher.announce()

    def group_metadata(self) -> GroupMetadata:
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
        Raises ApiError REQUEST_TIMED_OUT, and what stops the partition."""
        position = self._position_of(topic, partition)
        deadline = self._world.clock.monotonic() + self._limit_s(timeout_ms)
        self._fetcher.start()
        while position.offset is None:
            self._check_open()
            self._fetcher.forget_news()
            if self._group is not None:
                self._group.find_starts()
            if (error := position.stopped_by) is not None:
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
        return await self._offsets_at(partitions, EARLIEST, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[PartitionArgument], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The high watermarks, or with ``read_committed`` the last stable offsets. A consumer at
        this offset has read everything there is for it."""
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
        """For each partition the first record at or after a time in milliseconds; None if there is
        none."""
        self._check_open()
        for name, timestamp_ms in timestamps_ms.items():
            if timestamp_ms < 0:
                raise ConfigError(f"the time {timestamp_ms} for {name} must not be negative")
        wanted = {TopicPartition(*name): time for name, time in timestamps_ms.items()}
        found = await self._lookup.offsets(wanted, self._limit_s(timeout_ms))
        return {name: each if each.offset >= 0 else None for name, each in found.items()}

    async def partitions_for(self, topic: str, *, timeout_ms: float | None = None) -> list[int]:
        """The topic's partition numbers. Waits until the topic is known."""
        self._check_open()
        view = await self._view.wait_for_topic(topic, self._limit_s(timeout_ms))
        return sorted(view.partitions)

    def topic_id(self, topic: str) -> bytes:
        """The id of the topic that last had this name, as far as this client knows; empty if it
        knows none. A topic that is made anew has another one."""
        known = self._view.topic(topic)
        return known.topic_id if known else b""

    def read_topic_id(self, topic: str, partition: int) -> bytes:
        """The id of the topic of the last record that was returned from the partition; empty if
        there is none, or if the brokers give no ids."""
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


def _offsets(
    offsets: Mapping[PartitionArgument, OffsetArgument],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Raises ConfigError for offsets below 0."""
    given = {
        TopicPartition(*name): each
        if isinstance(each, OffsetAndMetadata)
        else OffsetAndMetadata(each)
        for name, each in offsets.items()
    }
    for name, each in given.items():
        if each.offset < 0:
            raise ConfigError(f"the offset {each.offset} of {name} must not be negative")
    return given


def _and(reason: str, rebalance: str) -> str:
    return f"{reason}; {rebalance}" if rebalance else reason


def _look_at(commit: asyncio.Future[None]) -> None:
    """A commit that nobody waits for may fail unnoticed."""
    if not commit.cancelled():
        commit.exception()


__all__ = ["Consumer", "ConsumerRecord", "ConsumerRecords", "OffsetAndTimestamp", "TopicPartition"]
