"""Publish: records of a thin client on their way to the leaders, and what became of each.

The records of a message that go to one partition make a run. They are checked one by one, written
together, and resolved together (``runs``). A stream with a transactional id hands its records to a
producer of its own instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from broker.gateway.piece_runs import PieceRuns
from broker.gateway.publishers import Publisher
from broker.gateway.record_checks import RecordChecks, fault_of
from broker.gateway.refusals import Refusal, bug, refusal_of, stream_error
from broker.gateway.runs import Room, Run, Written
from broker.gateway.shared_writers import SharedWriters, Way
from broker.gateway.stream_transactions import (
    EndOfTransaction,
    StreamTransactions,
    TransactionEnded,
)
from broker.gateway.transactional_producers import TransactionalProducers
from broker.service.context import BrokerContext
from runtime.authorization.caller import Caller
from stele.config import CompressionName
from stele.errors import ErrorCode
from stele.producer.outcomes import BatchOutcome
from stele.producer.partitioner import (
    LONG_KEY_BYTES,
    murmur2_in_turns,
)
from stele.records import RecordMetadata
from stele.wire.batch import Header
from stele.wire.record import RECORD_OVERHEAD, record_size_bound
from stele.world import RpcError

HELD_RECORDS_MAX: Final = 10_000
"""The records of one stream whose results the client has not taken. Then no more are read."""
HELD_BYTES_MAX: Final = 4 * 1024 * 1024
RESULTS_MAX: Final = 1_000
"""The most results of one message to the client, approximately."""
_ROOM_WAIT_S: Final = 30.0
_STOPPING: Final = Refusal(ErrorCode.BROKER_NOT_AVAILABLE, "this broker stops: use another one")
_NO_ROOM: Final = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    f"the records that wait for leaders took all memory for {_ROOM_WAIT_S:g} s",
)


class ToPublish(NamedTuple):
    """One record, as the client gave it."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp_ms: int | None  # None: now
    partition: int | None  # None: chosen here
    sequence: int | None = None  # of a publisher


class StoredRecords(NamedTuple):
    """Records of the stream that are in the log of one partition, one after the other."""

    numbers: Sequence[int]
    partition: int
    base_offset: int | None  # None: not known
    timestamps_ms: Sequence[int]
    is_duplicate: bool


class RefusedRecords(NamedTuple):
    """Records of the stream that are not in a log."""

    numbers: Sequence[int]
    refusal: Refusal


PublishOutcome = StoredRecords | RefusedRecords | TransactionEnded


class PublishOutlet(Protocol):
    """The client's side of a stream."""

    async def receive(self) -> Iterable[Sequence[ToPublish] | EndOfTransaction] | None:
        """The next message. Its records come in pieces. Each piece is made when it is its turn.
        None if the client has ended its side, or ``close`` was called. Raises RpcError."""
        ...

    async def send(self, outcomes: Sequence[PublishOutcome]) -> None:
        """Raises RpcError."""
        ...

    async def close(self) -> None:
        """Wake ``receive``. Nothing can be sent any more."""
        ...


class Writers(NamedTuple):
    """The writers that streams use. ``publisher`` makes the publisher of an id."""

    shared: SharedWriters
    publisher: Callable[[int, CompressionName], Publisher]
    transactional: TransactionalProducers
    room: Room


class Publication:
    """One stream. Results are told in the order in which they become known."""

    def __init__(
        self, context: BrokerContext, caller: Caller, writers: Writers, outlet: PublishOutlet
    ) -> None:
        self._clock = context.clock
        self._checks = RecordChecks(context, caller)
        self._writers = writers
        self._outlet = outlet
        self._way = Way()
        self._publisher: Publisher | None = None
        self._transactions: StreamTransactions | None = None
        self._transactional_id = ""  # of the transactions
        self._count = 0  # the number of the next record
        # Records that were received, and whose outcome was not sent.
        self._held_records = 0
        self._held_bytes = 0
        # With the records and the bytes that are not held any more once it is sent.
        self._outcomes: deque[tuple[PublishOutcome, int, int]] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._broken: RpcError | None = None
        self._is_stopping = False  # no more records are taken

    def write_by(self, way: Way, publisher_id: int | None) -> None:
        """How records are written, and by which publisher. Before the first record."""
        self._way = way
        if publisher_id is not None:
            self._publisher = self._writers.publisher(publisher_id, way.compression)

    def write_in_transactions(
        self, way: Way, transactional_id: str, transaction_timeout_ms: int
    ) -> None:
        """The producer of the transactional id is this stream. Before the first record. Raises
        RpcError."""
        self._transactional_id = transactional_id
        self._check_transactional_id()
        producer = self._writers.transactional.take(
            way.compression, transactional_id, transaction_timeout_ms
        )
        self._transactions = StreamTransactions(producer)

    async def run(self) -> None:
        """Serve until the client has ended its side and has every outcome. Raises RpcError."""
        sender = asyncio.get_running_loop().create_task(self._send_outcomes())
        try:
            while (pieces := await self._outlet.receive()) is not None:
                await self._take(pieces)
            await self._all_told()
            if self._broken is not None:
                raise self._broken
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            transactions = self._transactions
            if transactions is not None:
                self._writers.transactional.end(transactions.producer, transactions.close)
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

    async def _take(self, pieces: Iterable[Sequence[ToPublish] | EndOfTransaction]) -> None:
        self._checks.begin()
        if self._transactions is not None:
            self._check_transactional_id()
        is_first = True
        for piece in pieces:
            if not is_first:
                await asyncio.sleep(0)  # a piece is as much as one turn should do
            is_first = False
            while self._is_full and self._broken is None:
                await self._wait_for_room()
            if self._broken is not None:
                return
            if isinstance(piece, EndOfTransaction):
                await self._end_transaction(piece)
            elif self._transactions is not None:
                for record in piece:
                    await self._publish_in_transaction(self._transactions, record)
            else:
                await self._publish(piece)

    async def _publish(self, records: Sequence[ToPublish]) -> None:
        hashes = await _hashes_of_long_keys(records)
        number = self._count
        self._count += len(records)
        self._held_records += len(records)
        room = self._writers.room
        has_room = self._stops() or not room.is_full or await room.wait(_ROOM_WAIT_S)
        if self._stops() or not has_room:
            numbers = range(number, self._count)
            self._refuse(numbers, _STOPPING if self._stops() else _NO_ROOM)
            return
        runs = PieceRuns(self, self._writers.shared, self._way, self._publisher)
        checks, now_ms = self._checks, self._clock.time_ms()
        for record in records:
            topic, key, value, headers, timestamp_ms, partition, sequence = record
            found = checks.known(topic)
            if found is None:
                runs.write()  # the records before do not wait for this topic
                found = await checks.topic(topic)
                if self._stops():
                    self._refuse(range(number, self._count), _STOPPING)
                    return
            if isinstance(found, Refusal):
                refusal: Refusal | None = found
            else:
                size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
                if headers:
                    size = record_size_bound(key, value, headers)
                refusal = self._number_fault(partition, sequence) or fault_of(
                    found,
                    key=key,
                    timestamp_ms=timestamp_ms,
                    partition=partition,
                    size=size,
                    now_ms=now_ms,
                )
                if refusal is None:
                    if partition is None:
                        partition = runs.choose(found, key, size, hashes)
                    time_ms = now_ms if timestamp_ms is None else timestamp_ms
                    as_encoded = (key, value, headers, time_ms)
                    runs.add(found, partition, sequence, number, as_encoded, size)
            if refusal is not None:
                self._refuse((number,), refusal)
            number += 1
        runs.write()

    def _stops(self) -> bool:
        """Whether nothing more is to be written, which may come with any pause."""
        return self._is_stopping

    def _number_fault(self, partition: int | None, sequence: int | None) -> Refusal | None:
        if self._publisher is None:
            if sequence is None:
                return None
        elif sequence is not None and sequence >= 0:
            if partition is not None:
                return None
            message = "a record with a sequence names its partition"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        message = "a publisher's records, and no others, have sequences from 0 on"
        return Refusal(ErrorCode.INVALID_REQUEST, message)

    def held(self, size: int) -> None:
        """``size`` more bytes wait for their outcome."""
        self._held_bytes += size

    # ------------------------------------------------------------------- transactions

    def _check_transactional_id(self) -> None:
        """Raises RpcError, which ends the stream, and so aborts an open transaction."""
        why = self._checks.transactional_id(self._transactional_id)
        if why is not None:
            raise stream_error(why.code, why.message)

    async def _end_transaction(self, end: EndOfTransaction) -> None:
        if self._transactions is None:
            raise stream_error(
                ErrorCode.INVALID_REQUEST, "only a stream with a transactional_id has transactions"
            )
        self._held_records += 1
        self._resolved(await self._transactions.end(end.is_commit), 1, 0)

    async def _publish_in_transaction(
        self, transactions: StreamTransactions, record: ToPublish
    ) -> None:
        number = self._count
        self._count += 1
        size = record_size_bound(record.key, record.value, record.headers)
        self._held_records += 1
        self._held_bytes += size
        receipt = _Receipt(self, number, size)
        refusal = await self._refusal(record, size)
        if refusal is not None:
            transactions.lacks(refusal)
        else:
            refusal = await transactions.send(
                lambda producer: producer.send_into(
                    receipt,
                    record.topic,
                    record.value,
                    record.key,
                    record.headers,
                    record.timestamp_ms,
                    record.partition,
                )
            )
        if refusal is not None:
            receipt.refuse(refusal)

    async def _refusal(self, record: ToPublish, size: int) -> Refusal | None:
        if self._is_stopping:
            return _STOPPING
        found = await self._checks.topic(record.topic)
        if isinstance(found, Refusal):
            return found
        return self._number_fault(record.partition, record.sequence) or fault_of(
            found,
            key=record.key,
            timestamp_ms=record.timestamp_ms,
            partition=record.partition,
            size=size,
            now_ms=self._clock.time_ms(),
        )

    def settled(self, number: int, size: int, outcome: RecordMetadata | Refusal) -> None:
        """A record of a transaction has this outcome."""
        if isinstance(outcome, Refusal):
            self._resolved(RefusedRecords((number,), outcome), 1, size)
            return
        _, partition, offset, timestamp_ms = outcome
        base_offset = offset if offset >= 0 else None
        stored = StoredRecords(
            (number,), partition, base_offset, (timestamp_ms,), is_duplicate=False
        )
        self._resolved(stored, 1, size)

    # ----------------------------------------------------------------------- outcomes

    def stored(self, run: Run, first: int, record_count: int, written: Written) -> None:
        end = first + record_count
        partition, base_offset, append_time_ms, is_duplicate = written
        if is_duplicate:
            timestamps_ms = [0] * record_count
        elif append_time_ms >= 0:
            timestamps_ms = [append_time_ms] * record_count
        else:
            timestamps_ms = [time_ms for _, _, _, time_ms in run.records[first:end]]
        stored = StoredRecords(
            run.numbers[first:end], partition, base_offset, timestamps_ms, is_duplicate
        )
        self._resolved(stored, record_count, 0 if run.unresolved else run.size)

    def refused(self, run: Run, first: int, record_count: int, refusal: Refusal) -> None:
        numbers = run.numbers[first : first + record_count]
        self._resolved(
            RefusedRecords(numbers, refusal), record_count, 0 if run.unresolved else run.size
        )

    def _refuse(self, numbers: Sequence[int], refusal: Refusal) -> None:
        """Records that no run has."""
        self._resolved(RefusedRecords(numbers, refusal), len(numbers), 0)

    def _resolved(self, outcome: PublishOutcome, records: int, size: int) -> None:
        self._outcomes.append((outcome, records, size))
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
        taken: list[PublishOutcome] = []
        count = freed_bytes = 0
        while self._outcomes and count < RESULTS_MAX:
            outcome, records, size = self._outcomes.popleft()
            taken.append(outcome)
            count += records
            freed_bytes += size
        await self._outlet.send(taken)
        self._held_records -= count
        self._held_bytes -= freed_bytes
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


async def _hashes_of_long_keys(records: Sequence[ToPublish]) -> dict[bytes, int]:
    """The hash of each key that is too long to be hashed in one turn of the event loop."""
    hashes: dict[bytes, int] = {}
    for record in records:
        key = record.key
        if key is not None and len(key) > LONG_KEY_BYTES and record.partition is None:
            hashes[key] = await murmur2_in_turns(key)
    return hashes


class _Receipt:
    """Takes a record's outcome from the producer of a transaction, in place of a future."""

    __slots__ = ("_is_done", "_number", "_publication", "_size")

    def __init__(self, publication: Publication, number: int, size: int) -> None:
        self._publication = publication
        self._number = number
        self._size = size
        self._is_done = False

    def settle(self, outcome: BatchOutcome, number: int) -> None:
        if outcome.error is None:
            self._resolve(outcome.metadata(number))
        else:
            self._resolve(refusal_of(outcome.error, accepted=True))

    def refuse(self, refusal: Refusal) -> None:
        self._resolve(refusal)

    def _resolve(self, outcome: RecordMetadata | Refusal) -> None:
        if not self._is_done:
            self._is_done = True
            self._publication.settled(self._number, self._size, outcome)
