"""The asyncio producer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, Unpack

from stele.cluster.view import ClusterView
from stele.config import ClientWorld, ProducerConfig, ProducerOptions, real_world
from stele.errors import (
    ClosedError,
    ConfigError,
    SteleError,
)
from stele.ids import TopicPartition
from stele.producer.accumulator import Accumulator
from stele.producer.admission import Admission
from stele.producer.arguments import (
    HeadersArgument,
    Reader,
    check_reader,
    new_record,
)
from stele.producer.destinations import Destinations, TopicUnknownError
from stele.producer.failures import Failures
from stele.producer.intake import Intake
from stele.producer.outcomes import Delivery, Receipt
from stele.producer.sender import Sender
from stele.producer.transaction_state import PreparedTransaction
from stele.producer.transactional import Transactional
from stele.records import GroupMetadata, OffsetAndMetadata, ProducerRecord, RecordMetadata
from stele.wire.record import EncodedRecords

log = logging.getLogger(__name__)


class Producer:
    """Writes records to topics. Use it from one event loop. It starts by itself, but must be
    closed.

    >>> async with Producer("127.0.0.1:9092") as producer:
    ...     delivery = await producer.send("orders", b"value", key=b"key")
    ...     metadata = await delivery

    **Order and repetition.** The producer is idempotent by default: each record is written once and
    in order within its partition, however often a batch is sent. After a failure that may pass, a
    batch is sent again until ``delivery_timeout_ms`` after its records were accepted.

    **Failures.** Each delivery has its own error. ``flush`` and ``close`` raise the first failure
    since the last ``flush``, so that none is lost silently. At the end of the ``with`` block the
    producer delivers everything, or, after an exception, nothing more.

    **Transactions.** With a transactional id all records are written in transactions:

    >>> async with Producer("127.0.0.1:9092", transactional_id="orders-1") as producer:
    ...     async with producer.transaction():
    ...         await producer.send("orders", b"value")
    ...         await producer.send("payments", b"value")

    Options and their defaults: :class:`stele.config.ProducerConfig`.
    """

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """``bootstrap_servers``: ``host:port`` of one or more brokers, with commas between them.
        The other brokers are found by asking these.

        ``options`` are the fields of :class:`stele.config.ProducerConfig`. Raises ConfigError for
        an unknown or invalid option.
        """
        self._config = ProducerConfig.of(bootstrap_servers, options)
        self._world = world or real_world(self._config.client_security())
        self._view = ClusterView(self._config, self._world)
        self._accumulator = Accumulator(self._config)
        # Made by the first send, when there is a running event loop.
        self._sender: Sender | None = None
        self._destinations = Destinations(self._config, self._view)
        self._admission = Admission(
            self._config,
            self._view,
            self._accumulator,
            check_open=self._check_open,
            hurry=self._hurry,
            obstacle=self._first_reason,
        )
        self._intake = Intake(
            self._view,
            self._accumulator,
            self._destinations,
            self._admission,
            check=self._check_may_send,
            wake=lambda: self._started().wake(),
        )
        self._closed = False
        self._ending: asyncio.Task[None] | None = None
        self._fatal: SteleError | None = None
        self._failures = Failures()
        self._transactional: Transactional | None = None
        if (transactional_id := self._config.transactional_id) is not None:
            self._transactional = Transactional(self._config, self._view, transactional_id, self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self.abort()

    # ------------------------------------------------------------------------ sending

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: HeadersArgument = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Accept a record. The returned future gets its RecordMetadata or its error.

        ``value`` None is a tombstone: compaction removes the key. ``headers`` are pairs of a name
        and bytes, or a mapping. ``timestamp_ms``: milliseconds since 1970; None: now. Without
        ``partition`` a record goes to the partition that its key hashes to, as with Kafka's Java
        client, and a record without a key to the partition of the current batch.

        The call waits only while the topic is not known or the buffer is full, for at most
        ``max_block_ms``, and while a key of more than 16 KiB is hashed. After ``max_block_ms`` it
        raises ApiError UNKNOWN_TOPIC_OR_PARTITION, UnreachableError or BufferFullError. It raises
        ApiError INVALID_RECORD, INVALID_TIMESTAMP or MESSAGE_TOO_LARGE for a record that no batch
        can hold, and ClosedError. Records of a partition are in the order of the calls of ``send``
        that did not have to wait.

        >>> delivery = await producer.send("orders", b"value", key=b"invoice-1")
        >>> print((await delivery).offset)
        """
        future: Delivery = asyncio.get_running_loop().create_future()
        intake = self._intake
        record = intake.take_or_return(future, topic, value, key, headers, timestamp_ms, partition)
        if record is not None:
            await intake.wait_and_take(record)
        return future

    async def send_into(
        self,
        receipt: Receipt,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: HeadersArgument,
        timestamp_ms: int | None,
        partition: int | None,
    ) -> None:
        """As ``send``, with a receipt of the caller in place of a future."""
        await self._intake.send(receipt, topic, value, key, headers, timestamp_ms, partition)

    @property
    def intake(self) -> Intake:
        """For threads that hand records over."""
        return self._intake

    @property
    def buffer(self) -> Accumulator:
        """For threads that hand records over."""
        return self._accumulator

    def block_deadline(self) -> float:
        """When a call that begins now has lasted ``max_block_ms``."""
        return self._admission.deadline()

    async def send_all(self, records: Iterable[ProducerRecord]) -> None:
        """Accept records one after the other, without a future for each. ``flush``, or the commit
        of a transaction, tells whether all were delivered.

        Waits and raises as ``send`` does. The records before a refused one were accepted.

        >>> await producer.send_all(ProducerRecord("orders", line) for line in lines)
        """
        await self._intake.send_all(records)

    async def send_encoded(
        self, topic: str, records: EncodedRecords, partition: int | None = None
    ) -> None:
        """Accept records that are encoded already (``stele.column_encoder``), as a batch of their
        own.

        Without ``partition`` they go where records without keys go. ``flush``, or the commit of a
        transaction, tells whether they were delivered. Waits and raises as ``send`` does. The
        broker refuses records whose bytes cannot be read.
        """
        await self._intake.send_encoded(topic, records, partition)

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: HeadersArgument = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """As ``send``, but never waits. Raises BufferFullError, or TopicUnknownError for the first
        record of a topic. The event loop waits while a long key is hashed, some 60 ms for 1 MiB.
        """
        future: Delivery = asyncio.get_running_loop().create_future()
        record = new_record(topic, value, key, headers, timestamp_ms, partition, future)
        self._accumulator.check_size(record.size, "a record")
        self._accumulator.check_room(record.size)
        self._intake.take(record)
        return future

    async def room(self) -> None:
        """Wait until there is room for any record that may be sent, so that ``send_nowait``
        succeeds. Raises BufferFullError after ``max_block_ms``.
        """
        size = self._accumulator.largest_record_bytes
        if self._accumulator.must_wait(size):
            await self.wait_for_room(size, self.block_deadline())

    async def wait_for_room(self, size: int, deadline: float) -> None:
        """Wait until the buffer has room for ``size`` bytes. Other callers may take it before this
        one does. Raises BufferFullError at the deadline.
        """
        await self._admission.wait_for_room(size, deadline)

    def _hurry(self) -> None:
        if self._sender is not None:
            self._sender.wake()

    def _started(self) -> Sender:
        if self._sender is None:
            self._sender = Sender(
                self._config,
                self._view,
                self._accumulator,
                self._failures.note,
                self._on_fatal,
                self._destinations.on_drained,
                self._transactional,
            )
            self._sender.start()
        return self._sender

    def _check_may_send(self) -> int:
        """The number of the open transaction, to which records are added. Raises an error if the
        producer is closed or no transaction is open.
        """
        if self._closed or self._fatal is not None:
            self._check_open()
        if self._transactional is None:
            return 0
        self._transactional.machine.check_may_send()
        return self._transactional.machine.number

    # --------------------------------------------------------------------- transactions

    def _tx(self) -> Transactional:
        self._check_open()
        if self._transactional is None:
            raise ConfigError("transactions need Producer(..., transactional_id='a-name')")
        return self._transactional

    async def init_transactions(self) -> None:
        """Take over the transactional id: fence its earlier producer, and abort the transaction
        that the earlier one has left open. The first ``begin_transaction`` does it, too.

        Raises TransactionFatalError, and UnreachableError or ApiError after ``max_block_ms``.
        """
        await self._tx().init()

    async def begin_transaction(self) -> None:
        """Begin a transaction. The records that are sent from now on belong to it.

        Raises TransactionStateError unless the transaction before has ended, and as
        ``init_transactions`` does.
        """
        tx = self._tx()
        await tx.begin()
        self._failures.forget()

    async def commit_transaction(self) -> None:
        """Deliver everything, and commit the transaction. When this returns, the decision is on
        disk. Readers of committed records see it a moment later.

        Raises TransactionAbortableError if it cannot be committed (abort it then),
        ProducerFencedError and other TransactionFatalErrors, and TransactionOutcomeUnknownError if
        there is no answer within ``max_block_ms``: a further call asks again.
        """
        await self._tx().commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction. Records that are not delivered yet fail with
        TransactionAbortedError.

        Raises TransactionStateError if there is none or if it may be committed already,
        TransactionFatalError, and UnreachableError (the coordinator then aborts it after
        ``transaction_timeout_ms``).
        """
        try:
            await self._tx().abort()
        finally:
            self._failures.forget()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Begin a transaction. It is committed at the end of the block, and aborted after an
        exception.

        >>> async with producer.transaction():
        ...     await producer.send("orders", b"value")
        ...     await producer.send("payments", b"value")

        A TransactionAbortableError at the commit means that the transaction was aborted and may be
        tried again.
        """
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException as error:
            await self.abort_after(error)
            raise

    async def abort_after(self, error: BaseException) -> None:
        """Abort the transaction in which this error happened, unless it is being committed. Raises
        nothing.
        """
        if not self._tx().may_be_aborted:
            return
        try:
            await self.abort_transaction()
        except SteleError as problem:
            error.add_note(f"the transaction was not aborted: {problem}")
            log.error("the transaction was not aborted: %s", problem)

    async def send_offsets(
        self,
        consumer: Reader,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
    ) -> None:
        """Commit a consumer's offsets for its group together with the transaction (KIP-447).

        Without ``offsets``: for each partition the offset after the last record that its polls have
        returned. The consumer must not commit by itself (``enable_auto_commit=False``). Raises
        ConfigError if it does, TransactionAbortableError if the group has gone on without it.

        >>> async with producer.transaction():
        ...     for record in records:
        ...         await producer.send("shouting", record.value.upper(), key=record.key)
        ...     await producer.send_offsets(consumer)
        """
        check_reader(consumer)
        given = consumer.consumed_offsets() if offsets is None else offsets
        await self.send_group_offsets(consumer.group_metadata(), given)

    async def send_group_offsets(
        self, group: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """As ``send_offsets``, for a consumer elsewhere: ``group`` is what its ``group_metadata``
        has returned.
        """
        await self._tx().send_offsets(group, offsets)

    async def prepare_transaction(self) -> PreparedTransaction:
        """Deliver everything, and promise to send no more (KIP-939). Store the text of the result
        with your decision, and then call ``commit_transaction``, or ``complete_transaction`` in
        another process.

        The option ``transaction_two_phase_commit_enable`` is needed. Raises as
        ``commit_transaction``.
        """
        return await self._tx().prepare()

    async def complete_transaction(self, prepared: PreparedTransaction) -> bool:
        """Commit a prepared transaction: the first call of a producer that takes over after a
        failure.

        The transaction is committed if it is the one that the transactional id has prepared. Any
        other open transaction is aborted. Returns whether there was an open transaction: False if
        it was ended before. So the call may be repeated. Raises as ``commit_transaction``, and
        TransactionStateError while this producer has begun a transaction and not prepared it.

        >>> await producer.complete_transaction(PreparedTransaction.parse(text))
        """
        return await self._tx().complete(prepared)

    async def abort_prepared(self) -> bool:
        """Abort what the transactional id has prepared or left open. Returns and raises as
        ``complete_transaction``.
        """
        return await self._tx().complete(None)

    def fail_transaction(self, cause: SteleError) -> None:
        """The open transaction lacks a record: it can only be aborted."""
        if self._transactional is not None:
            self._transactional.fail(cause, is_in_doubt=False)

    async def deliver(self) -> None:
        """Wait until everything sent before is delivered or has failed. Raises none of these
        failures.
        """
        if self._sender is not None:
            self._sender.wake()
            await self._accumulator.flush()

    def abandon(self, cause: SteleError) -> bool:
        """Fail every record that is not delivered. Returns whether any of them was sent."""
        return self._sender is not None and self._sender.abandon(cause)

    # ------------------------------------------------------------------ flush and close

    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of the topic's partitions. Waits and raises as ``send`` does."""
        self._check_open()
        if self._view.topic(topic) is None:
            await self._admission.wait_for_topic(topic)
        view = self._view.topic(topic)
        return sorted(view.partitions) if view else []

    @property
    def batch_size(self) -> int:
        """The option: the size of a batch in bytes, before compression."""
        return self._config.batch_size

    @property
    def has_failed(self) -> bool:
        """Whether it can never send again. The log and ``send`` say why."""
        return self._fatal is not None

    @property
    def throttled_s(self) -> float:
        """How many seconds brokers have let this client wait, because it was above a quota of
        producers: the sum over all brokers.
        """
        return 0.0 if self._sender is None else self._sender.throttled_s

    def in_flight(self, broker_id: int) -> int:
        """The number of batches that were sent to this broker and not answered yet."""
        return 0 if self._sender is None else self._sender.in_flight(broker_id)

    def why(self) -> dict[TopicPartition, str]:
        """For each partition with undelivered records, one line that says why nothing moves.

        Examples of reasons: no known leader, a request without an answer, the next attempt and the
        last error, ``linger_ms``. A topic that ``send`` waits for is listed as partition -1.
        """
        now = self._world.clock.monotonic()
        full = ""
        if self._accumulator.is_full:
            used, most = self._accumulator.used_bytes, self._config.buffer_memory
            full = f"; the buffer is full ({used} of buffer_memory={most} bytes), and sends wait"
        reasons = self._admission.why()
        if self._transactional is not None and (waits_for := self._transactional.why()):
            reasons[TopicPartition(f"transaction {self._config.transactional_id}", -1)] = waits_for
        if self._sender is not None:
            for name, queue in self._accumulator.active.items():
                reasons[name] = self._sender.why(queue, now) + full
        return reasons

    async def flush(self) -> None:
        """Wait until everything sent before is delivered or has failed. Raises the first failure
        since the previous flush, once.
        """
        await self.deliver()
        self._failures.raise_first()

    async def close(self) -> None:
        """Deliver everything, then release all resources. An open transaction is aborted. Raises as
        ``flush`` does. Idempotent.
        """
        if self._closed:
            return
        try:
            if self._transactional is not None and self._transactional.is_open:
                await self._abort_at_close()
            await self.deliver()
            if self._transactional is None:  # the calls of transactions have raised their failures
                self._failures.raise_first()
        finally:
            await self.abort()

    async def _abort_at_close(self) -> None:
        try:
            await self.abort_transaction()
        except SteleError as error:
            log.warning("the open transaction is left to its time-out: %s", error)

    async def abort(self) -> None:
        """Release all resources at once. Records that are not delivered yet fail with
        ClosedError.

        Any number of tasks may call it. If the caller is cancelled, the end goes on.
        """
        if self._ending is None:
            self._closed = True
            self._ending = asyncio.get_running_loop().create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        await self._admission.end()
        if self._sender is not None:
            await self._sender.close()
        self._fail_all(ClosedError("the producer was closed before this was acknowledged"))
        await self._view.close()

    # ----------------------------------------------------------------------- failures

    def _on_fatal(self, cause: SteleError) -> None:
        log.error("the producer has failed: %s", cause)
        self._fatal = cause
        self._fail_all(cause)

    def _fail_all(self, cause: SteleError) -> None:
        for batch in self._accumulator.incomplete():
            batch.fail(cause)
            self._failures.note(batch, cause)
            self._accumulator.finish(batch)
        self._accumulator.active.clear()

    def _first_reason(self) -> str:
        for name, reason in self.why().items():
            return f" ({name}: {reason})"
        return ""

    def _check_open(self) -> None:
        if self._fatal is not None:
            raise ClosedError(f"the producer has failed: {self._fatal}") from self._fatal
        if self._closed:
            raise ClosedError("the producer is closed")


__all__ = ["Producer", "RecordMetadata", "TopicUnknownError"]
