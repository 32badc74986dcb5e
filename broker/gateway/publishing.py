"""Publish: records of a thin client on their way to the leaders, and what became of each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from broker.gateway.producers import Producers, Way
from broker.gateway.publishers import Numbered, Publisher
from broker.gateway.record_checks import RecordChecks, fault_of
from broker.gateway.refusals import Refusal, bug, refusal_of, stream_error
from broker.gateway.stream_transactions import (
    EndOfTransaction,
    StreamTransactions,
    TransactionEnded,
)
from broker.service.context import BrokerContext
from runtime.authorization.caller import Caller
from stele.aio import Producer
from stele.config import CompressionName
from stele.errors import ClosedError, ErrorCode, SteleError
from stele.ids import PartitionId
from stele.records import RecordMetadata
from stele.wire.batch import Header
from stele.world import RpcError
from storage.turns import Slices

HELD_RECORDS_MAX: Final = 10_000
"""The records of one stream whose results the client has not taken. Then no more are read."""
HELD_BYTES_MAX: Final = 4 * 1024 * 1024
RESULTS_MAX: Final = 1_000
"""Of one message to the client."""
_SLICE_RECORDS: Final = 100


class ToPublish(NamedTuple):
    """One record, as the client gave it."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp_ms: int | None  # None: now
    partition: int | None  # None: chosen here
    sequence: int | None = None  # of a publisher


class Outcome(NamedTuple):
    """What became of a record of the stream."""

    number: int
    written: RecordMetadata | Refusal
    is_duplicate: bool = False


class Outlet(Protocol):
    """The client's side of a stream."""

    async def receive(self) -> Iterable[ToPublish | EndOfTransaction] | None:
        """The next records, each of which is made when it is its turn. None if the client has
        ended its side, or ``close`` was called. Raises RpcError."""
        ...

    async def send(self, outcomes: Sequence[Outcome | TransactionEnded]) -> None:
        """Raises RpcError."""
        ...

    async def close(self) -> None:
        """Wake ``receive``. Nothing can be sent any more."""
        ...


Publishers = Callable[[int, CompressionName], Publisher]
"""Makes the publisher of an id."""


class Publication:
    """One stream. Results are told in the order in which they become known."""

    def __init__(
        self,
        context: BrokerContext,
        caller: Caller,
        producers: Producers,
        publishers: Publishers,
        outlet: Outlet,
    ) -> None:
        self._clock = context.clock
        self._checks = RecordChecks(context, caller)
        self._producers = producers
        self._publishers = publishers
        self._outlet = outlet
        self._way = Way()
        self._producer: Producer | None = None
        self._publisher: Publisher | None = None
        self._transactions: StreamTransactions | None = None
        self._count = 0  # the number of the next record
        # Records that were received, and whose outcome was not sent.
        self._held_records = 0
        self._held_bytes = 0
        self._outcomes: deque[tuple[Outcome | TransactionEnded, int]] = (
            deque()
        )  # with the size of the record
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._broken: RpcError | None = None
        self._is_stopping = False  # no more records are taken

    def write_by(self, way: Way, publisher_id: int | None) -> None:
        """How records are written, and by which publisher. Before the first record."""
        self._way = way
        if publisher_id is not None:
            self._publisher = self._publishers(publisher_id, way.compression)

    def write_in_transactions(
        self, way: Way, transactional_id: str, transaction_timeout_ms: int
    ) -> None:
        """The producer of the transactional id is this stream. Before the first record. Raises
        RpcError."""
        why = self._checks.transactional_id(transactional_id)
        if why is not None:
            raise stream_error(why.code, why.message)
        self._way = way
        self._producer = self._producers.take_transactional(
            way.compression, transactional_id, transaction_timeout_ms
        )
        self._transactions = StreamTransactions(self._producer)

    async def run(self) -> None:
        """Serve until the client has ended its side and has every outcome. Raises RpcError."""
        sender = asyncio.get_running_loop().create_task(self._send_outcomes())
        try:
            while (records := await self._outlet.receive()) is not None:
                await self._take(records)
            await self._all_told()
            if self._broken is not None:
                raise self._broken
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            if self._transactions is not None and self._producer is not None:
                self._producers.end_transactional(self._producer, self._transactions.close)
            elif self._producer is not None:
                self._producers.give_back(self._way, self._producer)
            if self._publisher is not None:
                await self._publisher.close()

    async def idle(self) -> None:
        """Take no more records, and wait until every outcome is sent."""
        self._is_stopping = True
        await self._all_told()

    async def end(self, why: RpcError) -> None:
        """End with this status, whatever is under way."""
        if self._broken is None:
            self._broken = why
        self._room.set()
        await self._outlet.close()

    # ------------------------------------------------------------------------ records

    async def _take(self, records: Iterable[ToPublish | EndOfTransaction]) -> None:
        self._checks.begin()
        slices = Slices(_SLICE_RECORDS)
        for record in records:
            while self._is_full and self._broken is None:
                await self._wait_for_room()
            if self._broken is not None:
                return
            if isinstance(record, EndOfTransaction):
                await self._end_transaction(record)
            else:
                await self._publish(record)
            await slices.step()

    async def _end_transaction(self, end: EndOfTransaction) -> None:
        if self._transactions is None:
            raise stream_error(
                ErrorCode.INVALID_REQUEST, "only a stream with a transactional_id has transactions"
            )
        self._held_records += 1
        self.resolved(await self._transactions.end(end.is_commit), 0)

    async def _publish(self, record: ToPublish) -> None:
        number = self._count
        self._count += 1
        size = len(record.key or b"") + len(record.value or b"")
        self._held_records += 1
        self._held_bytes += size
        refusal = await self._refusal(record)
        receipt = _Receipt(self, number, size)
        if refusal is not None:
            if self._transactions is not None:
                self._transactions.lacks(refusal)
            receipt.refuse(refusal)
            return
        if self._transactions is not None:
            refusal = await self._transactions.send(
                lambda producer: self._send_by(producer, record, receipt)
            )
            if refusal is not None:
                receipt.refuse(refusal)
            return
        try:
            await self._send(record, receipt)
        except SteleError as error:
            receipt.refuse(refusal_of(error, accepted=False))

    async def _refusal(self, record: ToPublish) -> Refusal | None:
        if self._is_stopping:
            return Refusal(ErrorCode.BROKER_NOT_AVAILABLE, "this broker stops: use another one")
        found = await self._checks.topic(record.topic)
        if isinstance(found, Refusal):
            return found
        is_numbered = record.sequence is not None
        if is_numbered is not (self._publisher is not None) or (record.sequence or 0) < 0:
            message = "a publisher's records, and no others, have sequences from 0 on"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        if is_numbered and record.partition is None:
            message = "a record with a sequence names its partition"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        return fault_of(
            found,
            key=record.key,
            value=record.value,
            headers=record.headers,
            timestamp_ms=record.timestamp_ms,
            partition=record.partition,
            now_ms=self._clock.time_ms(),
        )

    async def _send(self, record: ToPublish, receipt: _Receipt) -> None:
        if self._publisher is not None:
            await self._send_numbered(self._publisher, record, receipt)
            return
        producer = self._producer
        if producer is None or producer.has_failed:
            producer = self._another_producer()
        try:
            await self._send_by(producer, record, receipt)
        except ClosedError:
            if not producer.has_failed:
                raise
            # It failed while this record waited for room.
            await self._send_by(self._another_producer(), record, receipt)

    async def _send_numbered(
        self, publisher: Publisher, record: ToPublish, receipt: _Receipt
    ) -> None:
        found = await self._checks.topic(record.topic)
        assert not isinstance(found, Refusal)
        assert record.partition is not None  # `_refusal` has looked
        assert record.sequence is not None
        timestamp_ms = record.timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = self._clock.time_ms()
        publisher.send(
            PartitionId(found.topic.topic_id, record.partition),
            record.sequence,
            Numbered(record.key, record.value, record.headers, timestamp_ms, receipt),
        )

    def _another_producer(self) -> Producer:
        old, self._producer = self._producer, None
        if old is not None:
            self._producers.give_back(self._way, old)
        self._producer = self._producers.take(self._way)
        return self._producer

    @staticmethod
    async def _send_by(producer: Producer, record: ToPublish, receipt: _Receipt) -> None:
        await producer.send_into(
            cast(Any, receipt),
            record.topic,
            record.value,
            record.key,
            record.headers,
            record.timestamp_ms,
            record.partition,
        )

    # ----------------------------------------------------------------------- outcomes

    def resolved(self, outcome: Outcome | TransactionEnded, size: int) -> None:
        """The outcome of a record or a transaction is known."""
        self._outcomes.append((outcome, size))
        self._news.set()

    async def _send_outcomes(self) -> None:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._outcomes:
                    await self._send_some()
        except RpcError as error:
            await self.end(error)
        except Exception as error:
            await self.end(bug("a Publish stream", error))

    async def _send_some(self) -> None:
        count = min(len(self._outcomes), RESULTS_MAX)
        taken = [self._outcomes.popleft() for _ in range(count)]
        await self._outlet.send([outcome for outcome, _ in taken])
        self._held_records -= count
        self._held_bytes -= sum(size for _, size in taken)
        self._room.set()

    @property
    def _is_full(self) -> bool:
        return self._held_records >= HELD_RECORDS_MAX or self._held_bytes >= HELD_BYTES_MAX

    async def _all_told(self) -> None:
        while self._held_records and self._broken is None:
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        self._room.clear()
        await self._room.wait()


class _Receipt:
    """Takes a record's outcome from the producer, in place of a future."""

    __slots__ = ("_is_done", "_number", "_publication", "_size")

    def __init__(self, publication: Publication, number: int, size: int) -> None:
        self._publication = publication
        self._number = number
        self._size = size
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, written: RecordMetadata) -> None:
        self._resolve(written)

    def set_exception(self, error: BaseException) -> None:
        self._resolve(refusal_of(error, accepted=True))

    def exception(self) -> None:
        """For the producer, which marks the errors of futures as seen."""

    def refuse(self, refusal: Refusal) -> None:
        self._resolve(refusal)

    def stored(self, written: RecordMetadata, *, is_duplicate: bool) -> None:
        self._resolve(written, is_duplicate)

    def _resolve(self, written: RecordMetadata | Refusal, is_duplicate: bool = False) -> None:
        if not self._is_done:
            self._is_done = True
            outcome = Outcome(self._number, written, is_duplicate)
            self._publication.resolved(outcome, self._size)
