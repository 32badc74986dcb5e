"""The way of records into the batches of their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from stele.cluster.view import ClusterView, KnownTopic
from stele.errors import TransactionAbortedError
from stele.producer.accumulator import Accumulator
from stele.producer.admission import Admission
from stele.producer.arguments import (
    HeadersArgument,
    NewRecord,
    check_encoded,
    new_record,
    whole_number,
)
from stele.producer.destinations import Destinations
from stele.producer.outcomes import Waiting
from stele.producer.partitioner import LONG_KEY_BYTES, murmur2_in_turns
from stele.records import ProducerRecord
from stele.wire.record import EncodedRecords, OutgoingRecord

_RECORDS_PER_TURN: Final = 1_000
"""``send_all`` lets other tasks run after so many."""
_HAS_ROOM: Final = 2**62


class Intake:
    """Takes the records of one producer, one by one or in runs.

    ``check`` raises the reason why no record is accepted, and returns the number of the open
    transaction. ``wake`` has the sender look at the queues.
    """

    def __init__(
        self,
        view: ClusterView,
        accumulator: Accumulator,
        destinations: Destinations,
        admission: Admission,
        *,
        check: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self._view = view
        self._clock = view.world.clock
        self._accumulator = accumulator
        self._destinations = destinations
        self._admission = admission
        self._check = check
        self._wake = wake

    async def send(
        self,
        waiting: Waiting | None,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: HeadersArgument,
        timestamp_ms: int | None,
        partition: int | None,
    ) -> None:
        """Accept a record as soon as its topic is known and there is room for it."""
        record = self.take_or_return(waiting, topic, value, key, headers, timestamp_ms, partition)
        if record is not None:
            await self.wait_and_take(record)

    def take_or_return(
        self,
        waiting: Waiting | None,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: HeadersArgument,
        timestamp_ms: int | None,
        partition: int | None,
    ) -> NewRecord | None:
        """Accept a record, or return it if it has to wait: ``wait_and_take`` does. Most records do
        not, and a coroutine for each would cost as much as its batch."""
        self._check()
        record = new_record(topic, value, key, headers, timestamp_ms, partition, waiting)
        size = record.size
        accumulator = self._accumulator
        if size > accumulator.largest_record_bytes:
            accumulator.check_size(size, "a record")
        known = self._view.topic(topic)
        if known is None or accumulator.must_wait(size) or _has_long_key(record):
            return record
        self._put(record, known)
        return None

    async def wait_and_take(self, record: NewRecord) -> None:
        """Accept a record as soon as its topic is known, its key is hashed and there is room."""
        transaction = self._check()
        key_hash = None
        if record.key is not None and _has_long_key(record):
            key_hash = await murmur2_in_turns(record.key)
        await self._admission.wait(record.topic, record.size)
        if transaction != self._check():
            raise TransactionAbortedError("the transaction ended while the record waited for room")
        if key_hash is not None:
            partition = self._destinations.of_hash(record.topic, key_hash)
            record = record._replace(partition=partition)
        self.take(record)

    def take(self, record: NewRecord) -> None:
        """Put a record into a batch. There is room for it. Raises TopicUnknownError."""
        self._check()
        self._put(record, self._view.topic(record.topic))

    def _put(self, record: NewRecord, known: KnownTopic | None) -> None:
        topic, _, key, _, timestamp_ms, partition, _, size = record
        queue = self._destinations.queue_for(topic, known, key, partition, size)
        if timestamp_ms is None:
            timestamp_ms = self._clock.time_ms()
        batch, news = self._accumulator.append(queue, record, timestamp_ms, self._clock.monotonic)
        if partition is None and key is None:
            batch.is_sticky = True
        if news:
            self._wake()

    def take_run(self, records: list[NewRecord], start: int) -> tuple[int, int]:
        """As ``take``, for the records from ``start`` on that can be put into batches together.
        Returns how many they are, and their size. (0, 0): the first one has to go alone."""
        self._check()
        count, size, news = self._destinations.take_run(
            self._accumulator,
            records,  # type: ignore[arg-type]  # nobody appends to the list
            start,
            self._clock.time_ms(),
            self._clock.monotonic(),
            field_count=len(NewRecord._fields),
            room_bytes=_HAS_ROOM,
            are_waited_for=True,
        )
        if news:
            self._wake()
        return count, size

    async def send_all(self, records: Iterable[ProducerRecord]) -> None:
        """Accept records one after the other. Nobody waits for them."""
        rest = iter(records)
        accepted: list[OutgoingRecord] = []
        while len(accepted) == _RECORDS_PER_TURN or not accepted:
            accepted = []
            try:
                for record in islice(rest, _RECORDS_PER_TURN):
                    accepted.append(record)
            except Exception:
                await self._send_each(accepted)
                raise
            if not accepted:
                return
            await self._send_each(accepted)
            await asyncio.sleep(0)

    async def _send_each(self, records: list[OutgoingRecord]) -> None:
        """Accept records, as many at a time as make a run."""
        start = 0
        while start < len(records):
            self._check()
            count, _, news = self._destinations.take_run(
                self._accumulator,
                records,
                start,
                self._clock.time_ms(),
                self._clock.monotonic(),
                room_bytes=self._accumulator.room_bytes,
            )
            if not count:
                topic, value, key, headers, timestamp_ms, partition = records[start]
                await self.send(None, topic, value, key, headers, timestamp_ms, partition)
                count = 1
            elif news:
                self._wake()
            start += count

    async def send_encoded(
        self, topic: str, records: EncodedRecords, partition: int | None
    ) -> None:
        """Accept records that are encoded already, as a batch of their own."""
        transaction = self._check()
        check_encoded(records)
        partition = None if partition is None else whole_number(partition, "partition")
        size = len(records.body)
        self._accumulator.check_size(size, f"{records.record_count} records")
        await self._admission.wait(topic, size)
        if transaction != self._check():
            raise TransactionAbortedError("the transaction ended while the records waited for room")
        known = self._view.topic(topic)
        queue = self._destinations.queue_for(topic, known, None, partition, size)
        self._accumulator.append_encoded(queue, records, size, self._clock.monotonic())
        self._wake()


def _has_long_key(record: NewRecord) -> bool:
    """Whether the key has to be hashed in turns."""
    key = record.key
    return key is not None and len(key) > LONG_KEY_BYTES and record.partition is None
