"""The synchronous consumer."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Self, Unpack

from stele import aio
from stele.config import ClientWorld, ConsumerOptions
from stele.consumer.group.listener import RebalanceListener
from stele.consumer.polled import ConsumerRecords
from stele.consumer.positions import RawBatch
from stele.ids import TopicPartition
from stele.records import ConsumerRecord, GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
from stele.sync.calls_back import CallsBack


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
        self._ahead: deque[ConsumerRecord] = deque()  # polled by the iterator and not returned yet

    def close(self) -> None:
        """Commit and leave the group, and release all resources. Idempotent."""
        if not self._is_open:
            return
        try:
            self._put_back()
            self._run_calling_back(self._consumer.close())
        finally:
            self._is_open = False

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
        self._put_back()
        names = topics if isinstance(topics, (str, re.Pattern)) else list(topics)
        called = None if listener is None else self._called_by_the_caller(listener)
        self._do(lambda: self._consumer.subscribe(names, listener=called))

    def unsubscribe(self) -> None:
        """Leave the group, having committed, or forget the assigned partitions."""
        self._put_back()
        self._run_calling_back(self._consumer.unsubscribe())

    def why(self, *partitions: tuple[str, int]) -> dict[TopicPartition, str]:
        """As ``stele.aio.Consumer.why``."""
        return self._do(self._consumer.why, *partitions)

    def commit(
        self, offsets: Mapping[tuple[str, int], int | OffsetAndMetadata] | None = None
    ) -> None:
        """Commit these offsets for the group, or the positions of all partitions. The offset of a
        partition is that of the next record to read.

        Raises CommitFailedError if the group has gone on without this member, ApiError,
        UnreachableError.
        """
        self._put_back()
        self._run(self._consumer.commit(offsets))

    def commit_async(
        self, offsets: Mapping[tuple[str, int], int | OffsetAndMetadata] | None = None
    ) -> Future[None]:
        """Begin the same, and do not wait. Commits are made in the order in which they were begun.
        ``close`` does not wait for them."""
        self._put_back()
        return self._begin(self._consumer.commit(offsets))

    def committed(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where that is nothing."""
        return self._run(self._consumer.committed(partitions))

    @property
    def commits_by_itself(self) -> bool:
        return self._do(lambda: self._consumer.commits_by_itself)

    def consumed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """As ``stele.aio.Consumer.consumed_offsets``."""
        self._put_back()
        return self._do(self._consumer.consumed_offsets)

    def seek_to_committed(self, *partitions: tuple[str, int]) -> None:
        """As ``stele.aio.Consumer.seek_to_committed``."""
        self._put_back()
        self._do(lambda: self._consumer.seek_to_committed(*partitions))

    def group_metadata(self) -> GroupMetadata:
        return self._do(self._consumer.group_metadata)

    # --------------------------------------------------------------------- assignment

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions from now on. Partitions that stay keep their position."""
        names = [TopicPartition(*each) for each in partitions]
        self._put_back()
        self._do(self._consumer.assign, names)

    def assignment(self) -> list[TopicPartition]:
        return self._do(self._consumer.assignment)

    def seek(self, topic: str, partition: int, offset: int, leader_epoch: int = -1) -> None:
        """The next record returned is the one at ``offset``, or the first one after it.

        ``leader_epoch``: as ``stele.aio.Consumer.seek``.
        """
        self._put_back()
        self._do(self._consumer.seek, topic, partition, offset, leader_epoch)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        self._put_back()
        self._do(self._consumer.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        self._put_back()
        self._do(self._consumer.seek_to_end, *partitions)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions until ``resume``. Without arguments: of all."""
        self._put_back()
        self._do(self._consumer.pause, *partitions)

    def resume(self, *partitions: tuple[str, int]) -> None:
        self._do(self._consumer.resume, *partitions)

    def paused(self) -> list[TopicPartition]:
        return self._do(self._consumer.paused)

    def poll(self, max_records: int | None = None, timeout_ms: float = 1000) -> ConsumerRecords:
        """Records of the assigned partitions. Empty after ``timeout_ms`` without any."""
        self._put_back()
        return self._run_calling_back(self._consumer.poll(max_records, timeout_ms))

    def poll_batches(
        self, max_bytes: int = 4 * 1024 * 1024, timeout_ms: float = 1000
    ) -> list[RawBatch]:
        """As ``stele.aio.Consumer.poll_batches``."""
        self._put_back()
        return self._run(self._consumer.poll_batches(max_bytes, timeout_ms))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record. Waits for it without a limit."""
        while not self._ahead:
            self._ahead.extend(self._run_calling_back(self._consumer.poll(timeout_ms=1000)))
        return self._ahead.popleft()

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record to be returned. It is looked up if necessary."""
        self._put_back()
        return self._run(self._consumer.position(topic, partition))

    def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        return self._run(self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The high watermarks. A consumer at this offset has read everything there is."""
        return self._run(self._consumer.end_offsets(partitions))

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time in ms; None if there is none."""
        return self._run(self._consumer.offsets_for_times(timestamps_ms))

    def partitions_for(self, topic: str) -> list[int]:
        return self._run(self._consumer.partitions_for(topic))

    def topic_id(self, topic: str) -> bytes:
        """As ``stele.aio.Consumer.topic_id``."""
        return self._do(self._consumer.topic_id, topic)

    def _put_back(self) -> None:
        """Drop the records that the iterator has polled ahead. They are read again."""
        first: dict[tuple[str, int], int] = {}
        for record in self._ahead:
            first.setdefault((record.topic, record.partition), record.offset)
        self._ahead.clear()
        for (topic, partition), offset in first.items():
            self._do(self._consumer.seek, topic, partition, offset)
