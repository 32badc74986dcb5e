"""The synchronous producer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from stele import aio
from stele.config import ClientWorld, ProducerOptions
from stele.errors import SteleError
from stele.ids import TopicPartition
from stele.producer.arguments import HeadersArgument, NewRecord, Reader, check_reader, new_record
from stele.producer.transaction_state import PreparedTransaction
from stele.records import GroupMetadata, OffsetAndMetadata, ProducerRecord
from stele.sync.callbacks import Callbacks
from stele.sync.delivery import Delivery
from stele.sync.face import Face, shared
from stele.sync.handover import Handover
from stele.wire.record import EncodedRecords


class Producer(Face):
    """Writes records to topics.

    >>> with Producer("127.0.0.1:9092") as producer:
    ...     delivery = producer.send("orders", b"value", key=b"key")
    ...     producer.flush()
    ...     print(delivery.result().offset)

    Methods may be called from any thread.

    **Order and repetition.** The producer is idempotent by default: each record is written once and
    in order within its partition, however often a batch is sent. After a failure that may pass, a
    batch is sent again until ``delivery_timeout_ms`` after its records were accepted.

    **Failures.** Each delivery has its own error. ``flush`` and ``close`` raise the first failure
    since the last ``flush``, so that none is lost silently. At the end of the ``with`` block the
    producer delivers everything, or, after an exception, nothing more.

    **Transactions.** With a transactional id all records are written in transactions:

    >>> with Producer("127.0.0.1:9092", transactional_id="orders-1") as producer:
    ...     with producer.transaction():
    ...         producer.send("orders", b"value")
    ...         producer.send("payments", b"value")

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
        super().__init__()
        self._producer = self._do(lambda: aio.Producer(bootstrap_servers, world=world, **options))
        self._known_topics: set[str] = set()
        self._handover = Handover(self._producer, self._loop)
        self._callbacks = Callbacks()
        self._largest_bytes = self._producer.buffer.largest_record_bytes

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: HeadersArgument = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Accept a record. The delivery gets its RecordMetadata or its error.

        ``value`` None is a tombstone: compaction removes the key. ``headers`` are pairs of a name
        and bytes, or a mapping. ``timestamp_ms``: milliseconds since 1970; None: now. Without
        ``partition`` a record goes to the partition that its key hashes to, as with Kafka's Java
        client, and a record without a key to the partition of the current batch.

        The call waits only while the topic is not known or the buffer is full, for at most
        ``max_block_ms``. Then it raises ApiError UNKNOWN_TOPIC_OR_PARTITION, UnreachableError or
        BufferFullError. A record that no batch can hold (a value of text, too large) fails alone,
        in its delivery and in the next ``flush``.

        Waiting for each single delivery costs ``linger_ms`` each. Send many records, and then
        ``flush``.

        >>> delivery = producer.send("orders", b"value", key=b"invoice-1")
        >>> print(delivery.result().offset)
        """
        if not self._is_open or self._loop is not shared.loop:  # cheaper than the call
            self._check_usable()
        deadline = None
        if topic not in self._known_topics:
            deadline = self._wait_for_topic(topic)
        delivery = Delivery(self._callbacks)
        try:
            record = new_record(topic, value, key, headers, timestamp_ms, partition, delivery)
            if record.size > self._largest_bytes:
                self._producer.buffer.check_size(record.size, "a record")
        except Exception as error:
            self._handover.refuse(delivery, error)
            return delivery
        if not self._handover.put(record, has_waited=False):
            self._put_after_a_wait(record, deadline or self._producer.block_deadline())
        return delivery

    # Functions of their own: what a lambda refers to costs ``send`` a cell for each record.

    def _wait_for_topic(self, topic: str) -> float:
        """Returns the deadline of the call, which began before the wait."""
        deadline = self._producer.block_deadline()
        self._run(lambda: self._producer.partitions_for(topic))
        self._known_topics.add(topic)
        return deadline

    def _put_after_a_wait(self, record: NewRecord, deadline: float) -> None:
        while True:
            self._run(lambda: self._producer.wait_for_room(record.size, deadline))
            if self._handover.put(record, has_waited=True):
                return

    async def _move_and_flush(self) -> None:
        await self._handover.move()
        await self._producer.flush()

    def partitions_for(self, topic: str) -> list[int]:
        """The numbers of the topic's partitions. Waits and raises as ``send`` does."""
        return self._run(lambda: self._producer.partitions_for(topic))

    @property
    def batch_size(self) -> int:
        """The option: the size of a batch in bytes, before compression."""
        return self._producer.batch_size

    @property
    def throttled_s(self) -> float:
        """How many seconds brokers have let this client wait, because it was above a quota of
        producers: the sum over all brokers."""
        return self._producer.throttled_s

    def why(self) -> dict[TopicPartition, str]:
        """For each partition with undelivered records, one line that says why nothing moves.

        Examples of reasons: no known leader, a request without an answer, the next attempt and the
        last error, ``linger_ms``. A topic that ``send`` waits for is listed as partition -1.
        """
        return self._do(self._producer.why)

    def send_all(self, records: Iterable[ProducerRecord]) -> None:
        """Accept many records, without a delivery for each. ``flush``, or the commit of a
        transaction, tells whether all were delivered.

        Waits as ``send`` does. Raises the error of a record that cannot be accepted; the records
        before it were accepted. It is faster than many calls of ``send``, because the records
        change threads together.

        >>> producer.send_all([ProducerRecord("orders", line) for line in lines])
        """
        self._run(lambda: self._move_and_send(list(records)))

    async def _move_and_send(self, records: list[ProducerRecord]) -> None:
        await self._handover.move()
        await self._producer.send_all(records)

    def send_encoded(
        self, topic: str, records: EncodedRecords, partition: int | None = None
    ) -> None:
        """Accept records that are encoded already (``stele.column_encoder``), as a batch of their
        own.

        Without ``partition`` they go where records without keys go. ``flush``, or the commit of a
        transaction, tells whether they were delivered. Waits and raises as ``send`` does. The
        broker refuses records whose bytes cannot be read.
        """
        self._run(lambda: self._move_and_send_encoded(topic, records, partition))

    async def _move_and_send_encoded(
        self, topic: str, records: EncodedRecords, partition: int | None
    ) -> None:
        await self._handover.move()
        await self._producer.send_encoded(topic, records, partition)

    def flush(self) -> None:
        """Wait until everything sent before is delivered or has failed. Raises the first failure
        since the previous flush, once."""
        try:
            self._run(self._move_and_flush)
        except Exception:
            self._callbacks.wait()
            raise
        self._callbacks.wait()
        self._raise_refusal()

    def _raise_refusal(self) -> None:
        handover = self._handover
        refusal, handover.refusal = handover.refusal, None
        if refusal is not None:
            raise refusal

    # --------------------------------------------------------------------- transactions

    def init_transactions(self) -> None:
        """Take over the transactional id: fence its earlier producer, and abort the transaction
        that the earlier one has left open. The first ``begin_transaction`` does it, too.

        Raises TransactionFatalError, and UnreachableError or ApiError after ``max_block_ms``.
        """
        self._run(self._producer.init_transactions)

    def begin_transaction(self) -> None:
        """Begin a transaction. The records that are sent from now on belong to it.

        Raises TransactionStateError unless the transaction before has ended, and as
        ``init_transactions`` does.
        """
        self._run(self._producer.begin_transaction)
        self._handover.refusal = None

    def commit_transaction(self) -> None:
        """Deliver everything, and commit the transaction. When this returns, the decision is on
        disk. Readers of committed records see it a moment later.

        Raises TransactionAbortableError if it cannot be committed (abort it then), also if ``send``
        could not accept one of its records. Raises ProducerFencedError and other
        TransactionFatalErrors, and TransactionOutcomeUnknownError if there is no answer within
        ``max_block_ms``: a further call asks again.
        """
        self._run(self._move_all)
        self._run(self._producer.commit_transaction)

    def abort_transaction(self) -> None:
        """Abort the transaction. Records that are not delivered yet fail with
        TransactionAbortedError.

        Raises TransactionStateError if there is none or if it may be committed already,
        TransactionFatalError, and UnreachableError (the coordinator then aborts it after
        ``transaction_timeout_ms``).
        """
        self._run(self._move_all)
        self._run(self._producer.abort_transaction)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction. It is committed at the end of the block, and aborted after an
        exception.

        >>> with producer.transaction():
        ...     producer.send("orders", b"value")
        ...     producer.send("payments", b"value")

        A TransactionAbortableError at the commit means that the transaction was aborted and may be
        tried again.
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException as error:
            self._run(self._move_all)
            self._run(partial(self._producer.abort_after, error))
            raise

    def send_offsets(
        self,
        consumer: Reader,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
    ) -> None:
        """Commit a synchronous consumer's offsets for its group together with the transaction
        (KIP-447).

        Without ``offsets``: those behind the last records that its polls have returned. The
        consumer must not commit by itself (``enable_auto_commit=False``). Raises ConfigError if it
        does, TransactionAbortableError if the group has gone on without it.

        >>> with producer.transaction():
        ...     for record in records:
        ...         producer.send("shouting", record.value.upper(), key=record.key)
        ...     producer.send_offsets(consumer)
        """
        check_reader(consumer)
        given = consumer.consumed_offsets() if offsets is None else offsets
        self.send_group_offsets(consumer.group_metadata(), given)

    def send_group_offsets(
        self, group: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """As ``send_offsets``, for a consumer elsewhere: ``group`` is what its ``group_metadata``
        has returned."""
        self._run(lambda: self._producer.send_group_offsets(group, offsets))

    def prepare_transaction(self) -> PreparedTransaction:
        """Deliver everything, and promise to send no more (KIP-939). Store the text of the result
        with your decision, and then call ``commit_transaction``, or ``complete_transaction`` in
        another process.

        The option ``transaction_two_phase_commit_enable`` is needed. Raises as
        ``commit_transaction``.
        """
        self._run(self._move_all)
        return self._run(self._producer.prepare_transaction)

    def complete_transaction(self, prepared: PreparedTransaction) -> bool:
        """Commit a prepared transaction: the first call of a producer that takes over after a
        failure.

        The transaction is committed if it is the one that the transactional id has prepared. Any
        other open transaction is aborted. Returns whether there was an open transaction: False if
        it was ended before. So the call may be repeated. Raises as ``commit_transaction``, and
        TransactionStateError while this producer has begun a transaction and not prepared it.

        >>> producer.complete_transaction(PreparedTransaction.parse(text))
        """
        return self._run(lambda: self._producer.complete_transaction(prepared))

    def abort_prepared(self) -> bool:
        """Abort what the transactional id has prepared or left open. Returns and raises as
        ``complete_transaction``."""
        return self._run(self._producer.abort_prepared)

    async def _move_all(self) -> None:
        await self._handover.move()
        handover = self._handover
        refusal, handover.refusal = handover.refusal, None
        if isinstance(refusal, SteleError):
            self._producer.fail_transaction(refusal)
        elif refusal is not None:
            self._producer.fail_transaction(SteleError(f"a record was refused: {refusal!r}"))

    # --------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Deliver everything, then release all resources. An open transaction is aborted. Raises as
        ``flush`` does. Idempotent."""
        if not self._is_open or self._is_foreign:
            return
        try:
            self._run(self._move_and_close)
            self._raise_refusal()
        finally:
            self.abort()

    async def _move_and_close(self) -> None:
        await self._handover.move()
        await self._producer.close()

    def abort(self) -> None:
        """Release all resources at once. Records that are not delivered yet fail with ClosedError.
        Idempotent.
        """
        if not self._is_open or self._is_foreign:
            return
        self._run(self._abort)
        self._callbacks.wait()
        self._callbacks.stop()
        self._is_open = False

    async def _abort(self) -> None:
        await self._producer.abort()
        await self._handover.move()  # what nobody has moved is refused: the producer is closed

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()
