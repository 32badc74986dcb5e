"""The synchronous consumer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Self, Unpack

from stele import aio
from stele.config import ClientWorld, ConsumerOptions
from stele.consumer.group.listener import RebalanceListener
from stele.consumer.polled import ConsumerRecords
from stele.consumer.positions import RawBatch
from stele.errors import ClosedError, WakeupError
from stele.ids import TopicPartition
from stele.records import ConsumerRecord, GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
from stele.sync.callbacks import Callbacks
from stele.sync.calls_back import CallsBack
from stele.sync.errand import Errand


class Consumer(CallsBack):
    """Reads records.

    >>> with Consumer("127.0.0.1:9092", auto_offset_reset="earliest") as consumer:
    ...     consumer.assign([("orders", 0)])
    ...     for record in consumer.poll(timeout_ms=1000):
    ...         print(record.offset, record.value)

    With a group, whose members share the partitions of topics:

    >>> with Consumer("127.0.0.1:9092", group_id="billing") as consumer:
    ...     consumer.subscribe(["orders"])
    ...     for record in consumer:
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
        super().__init__()
        self._consumer = self._do(lambda: aio.Consumer(bootstrap_servers, world=world, **options))
        self._callbacks = Callbacks()

    def close(self) -> None:
        """Commit and leave the group, and release all resources. Idempotent.

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
        """Have ``poll``, or the iteration, in which another thread is raise WakeupError. If no
        thread is in one, the next one raises it. Any thread may call it, and a signal handler."""
        if self._is_open:
            self._loop.call_soon_threadsafe(self._wake, WakeupError("wakeup() was called"))

    # ------------------------------------------------------------------- subscription

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics as a member of the group, or all whose whole name a pattern matches.

        The next polls join the group. The listener's functions are called by the thread that calls
        ``poll``, ``unsubscribe`` or ``close``, and may commit.
        """
        self._settle()
        names = topics if isinstance(topics, (str, re.Pattern)) else list(topics)
        called = None if listener is None else self._called_by_the_caller(listener)
        self._do(lambda: self._consumer.subscribe(names, listener=called))

    def unsubscribe(self) -> None:
        """Leave the group, having committed, or forget the assigned partitions."""
        self._settle_alone()
        self._call_back(self._consumer.unsubscribe)

    def why(self, *partitions: tuple[str, int]) -> dict[TopicPartition, str]:
        """As ``stele.aio.Consumer.why``."""
        return self._do(self._consumer.why, *partitions)

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int | OffsetAndMetadata] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit these offsets for the group, or the positions of all partitions. The offset of a
        partition is that of the next record to read.

        Raises CommitFailedError if the group has gone on without this member, ApiError,
        UnreachableError.
        """
        self._settle()
        self._run(lambda: self._consumer.commit(offsets, timeout_ms=timeout_ms))

    def commit_async(
        self, offsets: Mapping[tuple[str, int], int | OffsetAndMetadata] | None = None
    ) -> Future[None]:
        """Begin the same, and do not wait. Commits are made in the order in which they were begun.
        ``close`` does not wait for them. Functions that are added to the future are called by a
        thread of their own."""
        self._settle()
        outcome: Future[None] = Future()

        def tell() -> None:
            self._callbacks.call(lambda: _pass_on(commit, outcome))

        commit = self._errand(lambda: self._consumer.commit(offsets), tell)
        commit.begin()
        return outcome

    def committed(
        self, partitions: Iterable[tuple[str, int]], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where that is nothing."""
        return self._run(lambda: self._consumer.committed(partitions, timeout_ms=timeout_ms))

    @property
    def commits_by_itself(self) -> bool:
        return self._do(lambda: self._consumer.commits_by_itself)

    def consumed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """As ``stele.aio.Consumer.consumed_offsets``."""
        self._settle()
        return self._do(self._consumer.consumed_offsets)

    def seek_to_committed(self, *partitions: tuple[str, int]) -> None:
        """As ``stele.aio.Consumer.seek_to_committed``."""
        self._settle()
        self._do(lambda: self._consumer.seek_to_committed(*partitions))

    def group_metadata(self) -> GroupMetadata:
        return self._do(self._consumer.group_metadata)

    # --------------------------------------------------------------------- assignment

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions from now on. Partitions that stay keep their position."""
        names = [TopicPartition(*each) for each in partitions]
        self._settle()
        self._do(self._consumer.assign, names)

    def assignment(self) -> list[TopicPartition]:
        return self._do(self._consumer.assignment)

    def seek(self, topic: str, partition: int, offset: int, leader_epoch: int = -1) -> None:
        """The next record returned is the one at ``offset``, or the first one after it.

        ``leader_epoch``: as ``stele.aio.Consumer.seek``.
        """
        self._settle()
        self._do(self._consumer.seek, topic, partition, offset, leader_epoch)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        self._settle()
        self._do(self._consumer.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        self._settle()
        self._do(self._consumer.seek_to_end, *partitions)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions until ``resume``. Without arguments: of all."""
        self._settle()
        self._do(self._consumer.pause, *partitions)

    def resume(self, *partitions: tuple[str, int]) -> None:
        self._do(self._consumer.resume, *partitions)

    def paused(self) -> list[TopicPartition]:
        return self._do(self._consumer.paused)

    def poll(self, max_records: int | None = None, timeout_ms: float = 1000) -> ConsumerRecords:
        """Records of the assigned partitions. Empty after ``timeout_ms`` without any. Raises
        WakeupError, and as ``stele.aio.Consumer.poll``."""
        self._settle_alone()
        call, records = self._call_back(lambda: self._consumer.poll(max_records, timeout_ms))
        # Python runs no signal handler between this line and the caller's assignment: it does so
        # only at calls and at jumps backwards. So the records count as returned if the caller has
        # them, and otherwise not.
        call.returned = call.count
        return records

    def poll_batches(
        self, max_bytes: int = 4 * 1024 * 1024, timeout_ms: float = 1000
    ) -> list[RawBatch]:
        """As ``stele.aio.Consumer.poll_batches``. Raises WakeupError, too."""
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
        """The offset of the next record to be returned. It is looked up if necessary."""
        self._settle()
        return self._run(lambda: self._consumer.position(topic, partition, timeout_ms=timeout_ms))

    def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._run(
            lambda: self._consumer.beginning_offsets(partitions, timeout_ms=timeout_ms)
        )

    def end_offsets(
        self, partitions: Iterable[tuple[str, int]], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The high watermarks. A consumer at this offset has read everything there is."""
        return self._run(lambda: self._consumer.end_offsets(partitions, timeout_ms=timeout_ms))

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time in ms; None if there is none."""
        return self._run(
            lambda: self._consumer.offsets_for_times(timestamps_ms, timeout_ms=timeout_ms)
        )

    def partitions_for(self, topic: str, *, timeout_ms: float | None = None) -> list[int]:
        return self._run(lambda: self._consumer.partitions_for(topic, timeout_ms=timeout_ms))

    def topic_id(self, topic: str) -> bytes:
        """As ``stele.aio.Consumer.topic_id``."""
        return self._do(self._consumer.topic_id, topic)

    def _put_back(self, records: Sequence[ConsumerRecord | RawBatch]) -> None:
        offsets: dict[tuple[str, int], int] = {}
        for each in records:
            if isinstance(each, RawBatch):
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
