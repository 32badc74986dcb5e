"""The records that a producer has accepted and not delivered yet: batches per partition, and the
memory that they use.

There is no IO here. The producer appends records, and the sender takes batches out and reports what
became of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from stele.cluster.leader_requests import PartitionRetry
from stele.config import ProducerConfig
from stele.errors import ApiError, BufferFullError, ErrorCode, SteleError
from stele.ids import TopicPartition
from stele.producer.arguments import WAITING, NewRecord, new_record
from stele.producer.idempotence import Entry, Lane
from stele.producer.outcomes import BatchOutcome, Waiting, settle_all
from stele.wire.batch import (
    NO_TIMESTAMP,
    BatchBuilder,
    decode,
    stamp_producer,
)
from stele.wire.compression import Compression
from stele.wire.record import EncodedRecords, OutgoingRecord

_UNENCODED_RECORDS: Final = 500
"""A batch encodes its records when it has so many, so that no turn of the event loop is long."""
_ANY_SIZE: Final = 2**62


class PendingBatch:
    """A batch that is being filled, is waiting or was sent, and whatever waits for its records."""

    __slots__ = (
        "_encoded",
        "_stamped",
        "_timestamps_ms",
        "_unencoded",
        "_unencoded_bytes",
        "_waiting",
        "builder",
        "created",
        "is_closed",
        "is_sticky",
        "memory",
        "partition",
        "record_count",
        "serial",
    )

    def __init__(self, partition: TopicPartition, created: float, serial: int) -> None:
        self.partition = partition
        self.created = created  # monotonic time; linger and delivery timeout count from it
        self.serial = serial  # rises over all batches of the producer
        self.builder: BatchBuilder | None = BatchBuilder()  # None once it is encoded
        # Single records that the builder has not yet: together they are encoded at a third of the
        # cost. Their bounds' sum is at least what they add to the batch.
        self._unencoded: list[OutgoingRecord] = []
        self._unencoded_bytes = 0
        self.record_count = 0
        self.memory = 0  # the bytes of buffer.memory that it uses
        self.is_closed = False  # it takes no more records
        self.is_sticky = False  # it has records that could have gone to any partition
        # By the number of the record. None: nobody waits for it. So it is for all records behind
        # the last one here, too.
        self._waiting: list[Waiting | None] = []
        self._timestamps_ms: list[int] = []  # of the records that somebody waits for
        self._encoded = bytearray()
        self._stamped: tuple[int, int, int] | None = None

    @property
    def size_bytes(self) -> int:
        if self.builder is None:
            return len(self._encoded)
        self._encode_records()
        return self.builder.size_bytes

    def append(self, record: NewRecord, timestamp_ms: int, limit_bytes: int) -> bool:
        """Add a record with this time, if the batch stays within ``limit_bytes``. An empty one
        takes a record of any size."""
        assert self.builder is not None
        _, value, key, headers, _, _, waiting, size = record
        if (
            self.builder.size_bytes + self._unencoded_bytes + size > limit_bytes
            and self.record_count
            and self.size_bytes + size > limit_bytes
        ):
            return False
        self._unencoded.append(("", value, key, headers, timestamp_ms))
        self._unencoded_bytes += size
        if waiting is not None:
            if len(self._waiting) != self.record_count:
                self._none_before()
            self._waiting.append(waiting)
            self._timestamps_ms.append(timestamp_ms)
        self.record_count += 1
        self.memory += size
        if len(self._unencoded) >= _UNENCODED_RECORDS:
            self._encode_records()
        return True

    def _encode_records(self) -> None:
        """Give the builder what it has not yet."""
        if not self._unencoded:
            return
        assert self.builder is not None
        count, _ = self.builder.extend(self._unencoded, 0, _ANY_SIZE, NO_TIMESTAMP)
        assert count == len(self._unencoded)
        self._unencoded, self._unencoded_bytes = [], 0

    def _none_before(self) -> None:
        """Nobody waits for the latest records."""
        if (missing := self.record_count - len(self._waiting)) > 0:
            self._waiting += [None] * missing
            self._timestamps_ms += [NO_TIMESTAMP] * missing

    def extend(
        self,
        records: list[OutgoingRecord],
        start: int,
        limit_bytes: int,
        now_ms: int,
        *,
        are_waited_for: bool,
    ) -> int:
        """Add records. As ``BatchBuilder.extend``. Returns how many. ``are_waited_for``: they are
        of ``NewRecord``."""
        assert self.builder is not None
        self._encode_records()
        count, bounds = self.builder.extend(records, start, limit_bytes, now_ms)
        if are_waited_for:
            self._none_before()
            added = records if count == len(records) else records[start : start + count]
            self._waiting += [each[WAITING] for each in added]
            self._timestamps_ms += [now_ms if each[4] is None else each[4] for each in added]
        self.record_count += count
        self.memory += bounds
        return count

    def fill(self, records: EncodedRecords) -> None:
        """Set the records of the batch. It takes no more records."""
        assert self.builder is not None
        self.builder.fill(records)
        self.record_count = records.record_count
        self.is_closed = True

    def encoded(
        self, entry: Entry[PendingBatch], compression: Compression, *, is_transactional: bool
    ) -> bytes:
        """The bytes of the batch with the entry's producer id and sequence. It is compressed only
        once."""
        stamp = (*entry.identity, entry.sequence)
        if self.builder is not None:
            self._encode_records()
            self._encoded = self.builder.build(
                compression,
                producer_id=stamp[0],
                producer_epoch=stamp[1],
                base_sequence=stamp[2],
                is_transactional=is_transactional,
            )
            self.builder = None
        elif stamp != self._stamped:
            stamp_producer(self._encoded, *stamp)
        self._stamped = stamp
        return bytes(self._encoded)

    def halves(self, serial: int) -> tuple[PendingBatch, PendingBatch]:
        """Two batches with the records of this one, which was encoded and has more than one."""
        middle = self.record_count // 2
        first, second = (PendingBatch(self.partition, self.created, serial) for _ in range(2))
        for number, record in enumerate(decode(self._encoded)):
            half = first if number < middle else second
            waiting = self._waiting[number] if number < len(self._waiting) else None
            again = new_record(
                "", record.value, record.key, record.headers, record.timestamp_ms, None, waiting
            )
            half.append(again, record.timestamp_ms, _ANY_SIZE)
        for half in (first, second):
            half.is_closed = True
        second.memory = self.memory - first.memory
        return first, second

    def succeed(self, base_offset: int, log_append_time_ms: int) -> None:
        """The broker has written the batch. ``log_append_time_ms`` -1: the records have their own
        times."""
        times_ms = self._timestamps_ms
        if log_append_time_ms >= 0:
            times_ms = [log_append_time_ms] * len(times_ms)
        self._settle(BatchOutcome(*self.partition, base_offset, times_ms))

    def fail(self, cause: SteleError) -> None:
        """Fail all records. The producer raises the error in ``flush`` and ``close``, in case
        nobody looks at the futures."""
        self._settle(BatchOutcome.failed(cause))

    def _settle(self, outcome: BatchOutcome) -> None:
        """Each record has one outcome: the first."""
        waiting, self._waiting = self._waiting, []
        settle_all(waiting, outcome)


class PartitionQueue:
    """One partition's batches: those in the lane, which have sequences and are the oldest, then the
    waiting ones."""

    __slots__ = (
        "batch_size",
        "gaps",
        "is_leader_told",
        "lane",
        "last_identity",
        "partition",
        "retry",
        "sent_at",
        "sent_to",
        "topic_id",
        "waiting",
    )

    def __init__(
        self,
        partition: TopicPartition,
        lane: Lane[PendingBatch],
        retry: PartitionRetry,
        batch_size: int,
    ) -> None:
        self.batch_size = batch_size  # lowered when the broker finds a batch too large
        self.partition = partition
        self.gaps = 0  # how often brokers missed earlier batches since the last acknowledgement
        # Whether the last acknowledgement named the leader and its epoch. Then the view knows of no
        # earlier leader, which would miss batches.
        self.is_leader_told = False
        self.lane = lane
        self.retry = retry
        self.waiting: deque[PendingBatch] = deque()  # only the last one may take more records
        self.topic_id = b""  # the topic id for which the lane assigned its sequences
        self.last_identity: tuple[int, int] | None = None  # the lane never uses it again
        self.sent_at = 0.0  # when a batch was last sent, and to which broker
        self.sent_to = -1

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.lane.window


class Accumulator:
    """The queues of all partitions. Only queues that are not empty are in ``active``."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._buffer_memory = config.buffer_memory
        self.largest_record_bytes = min(config.max_request_size, config.buffer_memory)
        self._next_serial = 0
        self._used_bytes = 0
        self._room_waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._flush_waiters: list[tuple[int, asyncio.Future[None]]] = []
        # By serial, in rising order. The parts of a batch that was split have its serial.
        self._incomplete: dict[int, list[PendingBatch]] = {}
        self.active: dict[TopicPartition, PartitionQueue] = {}
        # The sizes of all records that other threads have handed over, and of those of them that
        # were put into a batch or refused. Only those threads change the first number, and only the
        # loop the second.
        self.handed_over_bytes = 0
        self.taken_over_bytes = 0

    @property
    def used_bytes(self) -> int:
        return self._used_bytes + self.handed_over_bytes - self.taken_over_bytes

    def check_size(self, size: int, what: str) -> None:
        """Raises ApiError MESSAGE_TOO_LARGE for a record that can never be sent."""
        limit = self.largest_record_bytes
        if size > limit:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{what} of about {size} bytes: max_request_size and buffer_memory allow {limit}",
            )

    @property
    def is_full(self) -> bool:
        """Whether records wait for room."""
        return bool(self._room_waiters)

    def has_room(self, size: int) -> bool:
        return self.used_bytes + size <= self._buffer_memory

    def hand_over(self, size: int, *, has_waited: bool) -> bool:
        """From other threads, one at a time: count a record on its way to the loop, if there is
        room. Records that wait for room have precedence, and those that have waited."""
        used_bytes = self._used_bytes + self.handed_over_bytes - self.taken_over_bytes
        if used_bytes + size > self._buffer_memory:
            return False
        if self._room_waiters and not has_waited:
            return False
        self.handed_over_bytes += size
        return True

    def take_over(self, size: int) -> None:
        """A record that was handed over is put into a batch next, or was refused."""
        self.taken_over_bytes += size

    def must_wait(self, size: int) -> bool:
        """Whether a record has to wait for room. Records that wait already have precedence:
        otherwise small records could keep a large one waiting for ever."""
        if self._room_waiters:
            return True
        on_the_way = self.handed_over_bytes - self.taken_over_bytes
        return self._used_bytes + on_the_way + size > self._buffer_memory

    @property
    def room_bytes(self) -> int:
        """The bytes that records may take without a wait."""
        if self._room_waiters:
            return 0
        return self._config.buffer_memory - self.used_bytes

    def check_room(self, size: int) -> None:
        """Raises BufferFullError if the record had to wait for room."""
        if self.must_wait(size):
            raise BufferFullError(
                f"{self.used_bytes} of buffer_memory={self._config.buffer_memory} bytes wait for "
                "delivery: wait for room, or raise buffer_memory"
            )

    async def wait_for_room(self, size: int) -> None:
        """Wait for room, first come, first served. Check again afterwards: others may have taken
        it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (size, waiter)
        self._room_waiters.append(place)
        try:
            await waiter
        except asyncio.CancelledError:
            if place in self._room_waiters:
                self._room_waiters.remove(place)
            self.wake_for_room()  # this record takes no room, so a later one may fit
            raise

    def append(
        self,
        queue: PartitionQueue,
        record: NewRecord,
        timestamp_ms: int,
        monotonic: Callable[[], float],
    ) -> tuple[PendingBatch, bool]:
        """Add a record. Returns its batch, and whether the sender should look at the queue."""
        batches = queue.waiting
        batch = batches[-1] if batches and not batches[-1].is_closed else None
        self._used_bytes += record.size
        if batch is not None:
            if batch.append(record, timestamp_ms, queue.batch_size):
                return batch, False
            batch.is_closed = True
        batch = self._new_batch(queue, monotonic())
        batch.append(record, timestamp_ms, queue.batch_size)
        self._add(queue, batch)
        return batch, True

    def reserve(self, size: int) -> None:
        """Count the memory of records that are put into batches next."""
        self._used_bytes += size

    def append_run(
        self,
        queue: PartitionQueue,
        records: list[OutgoingRecord],
        now_ms: int,
        now: float,
        *,
        may_stick: bool,
        are_waited_for: bool,
    ) -> bool:
        """Add records for which memory is reserved. Returns whether the sender should look at the
        queue. ``may_stick``: some could have gone to any partition."""
        waiting = queue.waiting
        start = 0
        news = False
        while start < len(records):
            is_open = bool(waiting) and not waiting[-1].is_closed
            batch = waiting[-1] if is_open else self._new_batch(queue, now)
            count = batch.extend(
                records, start, queue.batch_size, now_ms, are_waited_for=are_waited_for
            )
            if may_stick and not batch.is_sticky:
                added = records[start : start + count]
                batch.is_sticky = any(each[2] is None and each[5] is None for each in added)
            start += count
            if not is_open:
                self._add(queue, batch)
            news |= not is_open
            if start < len(records):
                batch.is_closed = news = True
        return news

    def append_encoded(
        self, queue: PartitionQueue, records: EncodedRecords, size: int, now: float
    ) -> None:
        """Append a batch of its own for these records."""
        if queue.waiting:
            queue.waiting[-1].is_closed = True
        batch = self._new_batch(queue, now)
        batch.fill(records)
        self._add(queue, batch)
        batch.memory += size
        self._used_bytes += size

    def _new_batch(self, queue: PartitionQueue, now: float) -> PendingBatch:
        return PendingBatch(queue.partition, now, self._next_serial)

    def _add(self, queue: PartitionQueue, batch: PendingBatch) -> None:
        """It has a record by now: a batch that has none cannot be sent."""
        self._next_serial += 1
        self._incomplete[batch.serial] = [batch]
        queue.waiting.append(batch)
        self.active.setdefault(queue.partition, queue)

    def is_ready(self, batch: PendingBatch, now: float) -> bool:
        """No batch lingers while records wait for room: it holds the room that they wait for."""
        has_lingered = now >= batch.created + self._config.linger_ms / 1000
        return batch.is_closed or self.is_full or has_lingered

    def finish(self, batch: PendingBatch) -> None:
        """The batch is delivered or has failed: free its memory and end flushes that waited for
        it."""
        parts = self._incomplete[batch.serial]
        parts.remove(batch)
        if not parts:
            del self._incomplete[batch.serial]
        self._used_bytes -= batch.memory
        self.wake_for_room()
        if self._flush_waiters:
            self._wake_flushes()

    def wake_for_room(self) -> None:
        """Wake callers that wait for room, as far as there is room now."""
        free = self._config.buffer_memory - self.used_bytes
        while self._room_waiters and self._room_waiters[0][0] <= free:
            size, waiter = self._room_waiters.popleft()
            if not waiter.done():
                free -= size
                waiter.set_result(None)

    def incomplete(self) -> list[PendingBatch]:
        return [batch for parts in self._incomplete.values() for batch in parts]

    def split(self, queue: PartitionQueue, batch: PendingBatch) -> tuple[PendingBatch, ...]:
        """Replace a batch that was too large by two. Later batches of the partition stay smaller,
        so that they are not refused as well."""
        halves = batch.halves(batch.serial)
        parts = self._incomplete[batch.serial]
        at = parts.index(batch)
        parts[at : at + 1] = halves
        queue.batch_size = min(queue.batch_size, max(half.memory for half in halves))
        return halves

    async def flush(self) -> None:
        """Wait until everything accepted before the call is delivered or has failed."""
        if not self._incomplete:
            return
        for queue in self.active.values():
            if queue.waiting:
                queue.waiting[-1].is_closed = True  # the earlier ones are closed: none lingers
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flush_waiters.append((self._next_serial, waiter))
        await waiter

    def _wake_flushes(self) -> None:
        oldest = next(iter(self._incomplete), self._next_serial)
        for serial, waiter in self._flush_waiters:
            if serial <= oldest and not waiter.done():
                waiter.set_result(None)
        self._flush_waiters = [each for each in self._flush_waiters if not each[1].done()]
