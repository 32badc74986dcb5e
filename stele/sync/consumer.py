"""The synchronous consumer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Self, Unpack

from stele import aio
from stele.config import ClientWorld, ConsumerOptions
from stele.consumer.group.listener import RebalanceListener
from stele.consumer.polled import ConsumerRecords, PolledRows, table_of
from stele.consumer.positions import RawBatch
from stele.errors import ClosedError, WakeupError
from stele.ids import TopicPartition
from stele.records import ConsumerRecord, GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
from stele.sync.callbacks import Callbacks
from stele.sync.calls_back import CallsBack
from stele.sync.errand import Errand

if TYPE_CHECKING:
    import pyarrow as pa


class Consumer(CallsBack):
    """Reads records.

    With partitions that the caller chooses:

    >>> with Consumer("127.0.0.1:9092", auto_offset_reset="earliest") as consumer:
    ...     consumer.assign([("orders", 0)])
    ...     for record in consumer.poll(timeout_ms=1000):
    ...         print(record.offset, record.value)

    As a member of a group, whose members share the partitions of topics:

    >>> with Consumer("127.0.0.1:9092", group_id="billing") as consumer:
    ...     consumer.subscribe(["orders"])
    ...     for record in consumer:
    ...         handle(record)

    **Positions.** The position of a partition is the offset of the next record to be returned. It
    begins at the offset that the group has committed, and otherwise where ``auto_offset_reset``
    says. With a group and ``enable_auto_commit`` the consumer commits what earlier polls returned.

    **Errors.** If a partition cannot be read, each ``poll`` raises the reason until a ``seek``. The
    other calls raise ConfigError (a wrong argument, or a call that needs a group), ClosedError,
    ApiError (a broker refuses, or REQUEST_TIMED_OUT) and UnreachableError.

    **Threads and signals.** One thread at a time uses a consumer. Any thread, and any signal
    handler, may call ``wakeup`` and ``close``.

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
        super().__init__()
        self._consumer = self._do(lambda: aio.Consumer(bootstrap_servers, world=world, **options))
        self._callbacks = Callbacks()

    def close(self) -> None:
        """Commit, leave the group and release all resources. Idempotent.

        Any thread may call it, and a signal handler: a call that is under way raises ClosedError.
        If a signal interrupts it, closing goes on, and another call waits for its end.
        """
        if not self._is_open or self._is_foreign:
            return
        self._settle_to_close()
        self._call_back(self._consumer.close, is_closing=True)
        self._callbacks.stop()
        self._is_open = False

    def wakeup(self) -> None:
        """Make a ``poll`` or an iteration raise WakeupError: the one that is under way, or else the
        next one. Any thread may call it, and a signal handler.
        """
        if self._is_open:
            self._loop.call_soon_threadsafe(self._wake, WakeupError("wakeup() was called"))

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
        The listener's functions are called by the thread that calls ``poll``, ``unsubscribe`` or
        ``close``, and may commit. Raises ConfigError without a ``group_id`` or after ``assign``.

        >>> consumer.subscribe(["orders", "payments"])
        >>> consumer.subscribe(re.compile("orders-.*"), listener=RebalanceListener(on_assigned))
        """
        self._settle()
        names = topics if isinstance(topics, (str, re.Pattern)) else list(topics)
        called = None if listener is None else self._called_by_the_caller(listener)
        self._do(lambda: self._consumer.subscribe(names, listener=called))

    def unsubscribe(self) -> None:
        """Commit and leave the group, or forget the assigned partitions."""
        self._settle_alone()
        self._call_back(self._consumer.unsubscribe)

    def why(self, *partitions: tuple[str, int]) -> dict[TopicPartition, str]:
        """For each partition one line that says why it gives no records now.

        Examples of reasons: paused, at the end, no known leader, a broker without an answer, a
        rebalance. Without arguments: of all assigned partitions, and of each subscribed topic
        without an assigned partition, as partition -1.
        """
        return self._do(self._consumer.why, *partitions)

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int | OffsetAndMetadata] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit these offsets for the group, or the positions of all partitions.

        The offset of a partition names the next record to read. ``timeout_ms`` None means
        ``default_api_timeout_ms``, here and in the calls below.

        Raises CommitFailedError if the group has gone on without this member or the topic was
        deleted, ApiError, UnreachableError.

        >>> consumer.commit({("orders", 0): record.offset + 1})
        """
        self._settle()
        self._run(lambda: self._consumer.commit(offsets, timeout_ms=timeout_ms))

    def commit_async(
        self, offsets: Mapping[tuple[str, int], int | OffsetAndMetadata] | None = None
    ) -> Future[None]:
        """Begin a ``commit`` and return its future. Without offsets: the positions at this call.
        Commits are made in the order in which they were begun. ``close`` does not wait for them.
        Functions that are added to the future are called by a thread of their own.
        """
        self._settle()
        given = None if offsets is None else dict(offsets)  # the caller may change its own
        outcome: Future[None] = Future()

        def tell() -> None:
            self._callbacks.call(lambda: _pass_on(commit, outcome))

        commit = self._errand(lambda: self._consumer.commit(given), tell)
        commit.begin()
        return outcome

    def committed(
        self, partitions: Iterable[tuple[str, int]], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The offset that the group has committed for each partition. None: it has committed none.
        Raises ApiError, UnreachableError."""
        return self._run(lambda: self._consumer.committed(partitions, timeout_ms=timeout_ms))

    @property
    def commits_by_itself(self) -> bool:
        """Whether the consumer commits offsets in the background: it has a group and
        ``enable_auto_commit``."""
        return self._do(lambda: self._consumer.commits_by_itself)

    def consumed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """For each partition the offset after the last returned record, as ``commit`` takes it.
        Partitions whose position is not known yet are left out."""
        self._settle()
        return self._do(self._consumer.consumed_offsets)

    def seek_to_committed(self, *partitions: tuple[str, int]) -> None:
        """Go back to the offsets that the group has committed, for example after an aborted
        transaction. Without arguments: in all assigned partitions."""
        self._settle()
        self._do(lambda: self._consumer.seek_to_committed(*partitions))

    def group_metadata(self) -> GroupMetadata:
        """The group and this member of it, for ``Producer.send_group_offsets``."""
        return self._do(self._consumer.group_metadata)

    # --------------------------------------------------------------------- assignment

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions from now on.

        A partition that stays keeps its position. A new one begins at the offset that the group has
        committed, if there is a group, and otherwise where ``auto_offset_reset`` says. Raises
        ConfigError after ``subscribe``.
        """
        names = [TopicPartition(*each) for each in partitions]
        self._settle()
        self._do(self._consumer.assign, names)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that the consumer reads now."""
        return self._do(self._consumer.assignment)

    def seek(self, topic: str, partition: int, offset: int, leader_epoch: int = -1) -> None:
        """Go to an offset: the next record returned is the one at ``offset``, or the first one
        after it.

        ``leader_epoch``: the leader epoch of the last record before ``offset``, if the caller has
        stored it. The consumer then notices if this record has vanished since (KIP-320).

        >>> consumer.seek("orders", 0, record.offset + 1, leader_epoch=record.leader_epoch)
        """
        self._settle()
        self._do(self._consumer.seek, topic, partition, offset, leader_epoch)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go to the log start offset as it is when the next record is needed. Without arguments: in
        all assigned partitions."""
        self._settle()
        self._do(self._consumer.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go to the high watermark as it is when the next record is needed. Without arguments: in
        all assigned partitions."""
        self._settle()
        self._do(self._consumer.seek_to_end, *partitions)

    def fetch_until(self, topic: str, partition: int, end_offset: int) -> None:
        """Fetch nothing of a partition from ``end_offset`` on, until it is assigned anew or another
        end is set.

        For readers of a range of offsets: otherwise the consumer fetches ahead beyond it. The batch
        with the last offset of the range comes whole. If no other partition is assigned, the range
        is fetched ahead up to ``prefetch_bytes``. Raises ConfigError for a partition that is not
        assigned.

        >>> consumer.fetch_until("orders", 0, 5000)
        """
        self._do(self._consumer.fetch_until, topic, partition, end_offset)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions until ``resume``. Records that were fetched are
        kept. Without arguments: of all assigned partitions."""
        self._settle()
        self._do(self._consumer.pause, *partitions)

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Return records of these partitions again. Without arguments: of all partitions."""
        self._do(self._consumer.resume, *partitions)

    def paused(self) -> list[TopicPartition]:
        """The assigned partitions that are paused."""
        return self._do(self._consumer.paused)

    def poll(self, max_records: int | None = None, timeout_ms: float = 1000) -> ConsumerRecords:
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
        refuses. Further polls ask again, and return records when the right is back. Raises
        WakeupError after ``wakeup``.

        A member of a group joins, gives partitions up and gets others within its polls. Raises
        FencedInstanceError or ApiError when it cannot be a member. A member without the right READ
        of its group loses its partitions, and reads nothing outside of the group.
        """
        self._settle_alone()
        call, records = self._call_back(lambda: self._consumer.poll(max_records, timeout_ms))
        # Python runs no signal handler between this line and the caller's assignment: it does so
        # only at calls and at jumps backwards. So the records count as returned if the caller has
        # them, and otherwise not.
        call.returned = call.count
        return records

    def poll_arrow(
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

        >>> table = consumer.poll_arrow()
        >>> frame = table.to_pandas()
        """
        self._settle_alone()
        call, polled = self._call_back(
            lambda: self._consumer.poll_rows(max_bytes, timeout_ms, include_headers=include_headers)
        )
        table = table_of(polled, include_headers=include_headers)
        call.returned = call.count  # as in ``poll``
        return table

    def poll_batches(
        self, max_bytes: int = 4 * 1024 * 1024, timeout_ms: float = 1000
    ) -> list[RawBatch]:
        """As ``poll``, but whole record batches that are neither checked nor decompressed: some
        ``max_bytes`` of one partition.

        The position moves behind them. If there were only batches that hold no records for the
        consumer, the list is empty at once and the position has moved. For readers that make
        columns of batches, such as ``stele.column_decoder``. Raises ConfigError with a group, and
        WakeupError.
        """
        self._settle_alone()
        call, taken = self._call_back(lambda: self._consumer.poll_batches(max_bytes, timeout_ms))
        call.returned = call.count  # as in ``poll``
        return taken

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record. Waits for it without a limit."""
        call = self._call
        while call is None or not call.is_iterated or call.returned == call.count:
            self._settle_alone()
            call, _ = self._call_back(lambda: self._consumer.poll(timeout_ms=1000))
            call.is_iterated = True
        record: ConsumerRecord = call.records[call.returned]
        call.returned += 1  # as in ``poll``
        return record

    def position(self, topic: str, partition: int, *, timeout_ms: float | None = None) -> int:
        """The offset of the next record to be returned. It is looked up if it is not known yet.

        Raises ApiError REQUEST_TIMED_OUT after ``timeout_ms``, and the error that stops the
        partition.
        """
        self._settle()
        return self._run(lambda: self._consumer.position(topic, partition, timeout_ms=timeout_ms))

    def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The log start offset of each partition: the offset of the oldest record that may still be
        there. Raises ApiError, UnreachableError."""
        return self._run(
            lambda: self._consumer.beginning_offsets(partitions, timeout_ms=timeout_ms)
        )

    def end_offsets(
        self, partitions: Iterable[tuple[str, int]], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The high watermark of each partition, or with ``read_committed`` the last stable offset.
        A consumer at this offset has read everything there is for it. Raises ApiError,
        UnreachableError."""
        return self._run(lambda: self._consumer.end_offsets(partitions, timeout_ms=timeout_ms))

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time, in milliseconds since 1970. None
        if there is no such record.

        Raises ConfigError for a negative time, ApiError, UnreachableError.

        >>> consumer.offsets_for_times({("orders", 0): 1_767_225_600_000})
        """
        return self._run(
            lambda: self._consumer.offsets_for_times(timestamps_ms, timeout_ms=timeout_ms)
        )

    def partitions_for(self, topic: str, *, timeout_ms: float | None = None) -> list[int]:
        """The numbers of the topic's partitions. Waits until the topic is known. Raises ApiError
        UNKNOWN_TOPIC_OR_PARTITION, UnreachableError."""
        return self._run(lambda: self._consumer.partitions_for(topic, timeout_ms=timeout_ms))

    @property
    def throttled_s(self) -> float:
        """How many seconds brokers have let this client wait, because it was above a quota of
        consumers: the sum over all brokers."""
        return self._consumer.throttled_s

    def topic_id(self, topic: str) -> bytes:
        """The id of the topic that last had this name, as far as this client knows. It is empty if
        the client knows none. A topic that is deleted and made anew has another id."""
        return self._do(self._consumer.topic_id, topic)

    def _put_back(self, records: Sequence[ConsumerRecord | RawBatch | PolledRows]) -> None:
        offsets: dict[tuple[str, int], int] = {}
        for each in records:
            if isinstance(each, PolledRows):
                offsets.setdefault(each.partition, each.position)
            elif isinstance(each, RawBatch):
                offsets.setdefault(each.partition, each.first_offset)
            else:
                offsets.setdefault(TopicPartition(each.topic, each.partition), each.offset)
        self._consumer.put_back(offsets)


def _pass_on(commit: Errand[None], outcome: Future[None]) -> None:
    """Settle a future that a thread may wait for. The loop does not: see ``Errand``."""
    if not outcome.set_running_or_notify_cancel():
        return
    try:
        outcome.set_result(commit.result())
    except asyncio.CancelledError:
        outcome.set_exception(ClosedError("the consumer was closed before the commit was answered"))
    except Exception as error:
        outcome.set_exception(error)
