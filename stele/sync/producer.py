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
from stele.producer.arguments import HeadersArgument, Reader, check_reader, new_record
from stele.producer.transactions import PreparedTransaction
from stele.records import GroupMetadata, OffsetAndMetadata, ProducerRecord
from stele.sync.callbacks import Callbacks
from stele.sync.delivery import Delivery
from stele.sync.face import Face, shared
from stele.sync.handover import Handover
from stele.wire.record import EncodedRecords


class Producer(Face):
    """Writes records.

    >>> with Producer("127.0.0.1:9092") as producer:
    ...     delivery = producer.send("orders", b"value", key=b"key")
    ...     producer.flush()
    ...     print(delivery.result().offset)

    With a transactional id all records are written in transactions:

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
        super().__init__()
        self._producer = self._do(lambda: aio.Producer(bootstrap_servers, world=world, **options))
        self._known_topics: set[str] = set()
        self._handover = Handover(self._producer, self._loop)
        self._callbacks = Callbacks()

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

        This waits while the topic is not known and while the buffer is full, for at most
        ``max_block_ms``. Then it raises ApiError or BufferFullError. Waiting for each single
        delivery costs ``linger_ms`` each.
        """
        if not self._is_open or self._loop is not shared.loop:  # cheaper than the call
            self._check_usable()
        deadline = None
        if topic not in self._known_topics:
            deadline = self._producer.block_deadline()
            self._run(lambda: self._producer.partitions_for(topic))
            self._known_topics.add(topic)
        delivery = Delivery(self._callbacks)
        handover = self._handover
        try:
            record = new_record(topic, value, key, headers, timestamp_ms, partition)
            self._producer.buffer.check_size(record.size, "a record")
        except Exception as error:
            handover.refuse(delivery, error)
            return delivery
        if not handover.put(delivery, record, has_waited=False):
            deadline = deadline or self._producer.block_deadline()
            while True:
                self._run(lambda: self._producer.wait_for_room(record.size, deadline))
                if handover.put(delivery, record, has_waited=True):
                    break
        return delivery

    async def _move_and_flush(self) -> None:
        await self._handover.move()
        await self._producer.flush()

    def partitions_for(self, topic: str) -> list[int]:
        return self._run(lambda: self._producer.partitions_for(topic))

    @property
    def batch_size(self) -> int:
        """As ``stele.aio.Producer.batch_size``."""
        return self._producer.batch_size

    def why(self) -> dict[TopicPartition, str]:
        """As ``stele.aio.Producer.why``."""
        return self._do(self._producer.why)

    def send_all(self, records: Iterable[ProducerRecord]) -> None:
        """As ``stele.aio.Producer.send_all``. The records are taken from a list by the loop's
        thread, so that they cost no change of threads each."""
        self._run(lambda: self._move_and_send(list(records)))

    async def _move_and_send(self, records: list[ProducerRecord]) -> None:
        await self._handover.move()
        await self._producer.send_all(records)

    def send_encoded(
        self, topic: str, records: EncodedRecords, partition: int | None = None
    ) -> None:
        """As ``stele.aio.Producer.send_encoded``."""
        self._run(lambda: self._move_and_send_encoded(topic, records, partition))

    async def _move_and_send_encoded(
        self, topic: str, records: EncodedRecords, partition: int | None
    ) -> None:
        await self._handover.move()
        await self._producer.send_encoded(topic, records, partition)

    def flush(self) -> None:
        """Wait until everything sent before is delivered or has failed.

        Raises the first failure since the previous flush, once.
        """
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
        """Take the transactional id over: fence its earlier producer, and abort what that has not
        committed. The first ``begin_transaction`` does it, too."""
        self._run(self._producer.init_transactions)

    def begin_transaction(self) -> None:
        """As ``stele.aio.Producer.begin_transaction``."""
        self._run(self._producer.begin_transaction)
        self._handover.refusal = None

    def commit_transaction(self) -> None:
        """As ``stele.aio.Producer.commit_transaction``. A record that ``send`` could not accept
        makes the transaction abortable."""
        self._run(self._move_all)
        self._run(self._producer.commit_transaction)

    def abort_transaction(self) -> None:
        """As ``stele.aio.Producer.abort_transaction``."""
        self._run(self._move_all)
        self._run(self._producer.abort_transaction)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction. It is committed at the end, and aborted if there is an exception
        before.

        >>> with producer.transaction():
        ...     producer.send("orders", b"value")
        ...     producer.send("payments", b"value")

        A TransactionAbortableError at the commit means that it was aborted and may be tried again.
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
        """As ``stele.aio.Producer.send_offsets``, for a synchronous consumer."""
        check_reader(consumer)
        given = consumer.consumed_offsets() if offsets is None else offsets
        self.send_group_offsets(consumer.group_metadata(), given)

    def send_group_offsets(
        self, group: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """The same for a consumer of which only this is known."""
        self._run(lambda: self._producer.send_group_offsets(group, offsets))

    def prepare_transaction(self) -> PreparedTransaction:
        """As ``stele.aio.Producer.prepare_transaction``."""
        self._run(self._move_all)
        return self._run(self._producer.prepare_transaction)

    def complete_transaction(self, prepared: PreparedTransaction) -> bool:
        """As ``stele.aio.Producer.complete_transaction``."""
        return self._run(lambda: self._producer.complete_transaction(prepared))

    def abort_prepared(self) -> bool:
        """As ``stele.aio.Producer.abort_prepared``."""
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
        """Deliver everything, then release all resources. Raises as ``flush`` does. Idempotent."""
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
        """Release all resources at once. What is not delivered yet fails with ClosedError.
        Idempotent."""
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
