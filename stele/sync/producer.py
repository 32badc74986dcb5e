"""The synchronous producer."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, Unpack, cast

from stele import aio
from stele.config import ClientWorld, ProducerOptions
from stele.errors import ClosedError, SteleError
from stele.ids import TopicPartition
from stele.producer.arguments import HeadersArgument, Reader, check_reader
from stele.producer.transactions import PreparedTransaction
from stele.records import GroupMetadata, OffsetAndMetadata, ProducerRecord
from stele.sync.delivery import Delivery
from stele.sync.face import Face
from stele.wire.record import EncodedRecords

MAX_HANDED_OVER = 10_000
"""The most records on their way from the caller's thread to the loop. Beyond it the caller
waits."""
PUMP_INTERVAL_S = 0.001
MAX_IDLE_ROUNDS = 5
"""After this many rounds without a record the loop waits until the next record wakes it."""


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
        self._handed_over: deque[tuple[Delivery, tuple[Any, ...]]] = deque()
        self._changed = threading.Condition()  # guards the attributes below
        self._is_pumping = False
        self._moving = asyncio.Lock()  # only one round runs at a time
        self._refusal: SteleError | None = None  # the first refusal since the last flush

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

        This waits while the topic is not known (ApiError after ``max_block_ms``) and while the
        buffer is full. Waiting for each single delivery costs ``linger_ms`` each.
        """
        if not self._is_open:
            raise ClosedError("the producer is closed")
        if topic not in self._known_topics:
            self._run(self._producer.partitions_for(topic))
            self._known_topics.add(topic)
        delivery = Delivery()
        arguments = (topic, value, key, headers, timestamp_ms, partition)
        with self._changed:
            while len(self._handed_over) >= MAX_HANDED_OVER:
                self._changed.wait()
            self._handed_over.append((delivery, arguments))
            if self._is_pumping:
                return delivery
            self._is_pumping = True
        self._loop.call_soon_threadsafe(self._start_pump)
        return delivery

    def _start_pump(self) -> None:
        self._pump_task = self._loop.create_task(self._pump())

    async def _pump(self) -> None:
        """Runs on the loop: moves records that callers handed over into the producer's buffer.

        It works in rounds. If each record of a busy caller woke the loop, each would cost a change
        of threads.
        """
        idle_rounds = 0
        while True:
            moved = await self._move()
            idle_rounds = 0 if moved else idle_rounds + 1
            if idle_rounds > MAX_IDLE_ROUNDS:
                with self._changed:
                    if not self._handed_over:
                        self._is_pumping = False
                        return
            if moved < MAX_HANDED_OVER // 4:
                await asyncio.sleep(PUMP_INTERVAL_S)

    async def _move(self) -> int:
        """One round. Returns how many records were moved. Rounds keep the order of the records."""
        async with self._moving:
            with self._changed:
                taken = list(self._handed_over)
                self._handed_over.clear()
                self._changed.notify_all()
            for delivery, arguments in taken:
                try:
                    await self._producer.send_into(cast(Any, delivery), *arguments)
                except SteleError as error:
                    delivery.set_exception(error)
                    self._refusal = self._refusal or error
            return len(taken)

    async def _move_and_flush(self) -> None:
        await self._move()
        await self._producer.flush()

    def partitions_for(self, topic: str) -> list[int]:
        return self._run(self._producer.partitions_for(topic))

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
        self._run(self._move_and_send(list(records)))

    async def _move_and_send(self, records: list[ProducerRecord]) -> None:
        await self._move()
        await self._producer.send_all(records)

    def send_encoded(
        self, topic: str, records: EncodedRecords, partition: int | None = None
    ) -> None:
        """As ``stele.aio.Producer.send_encoded``."""
        self._run(self._move_and_send_encoded(topic, records, partition))

    async def _move_and_send_encoded(
        self, topic: str, records: EncodedRecords, partition: int | None
    ) -> None:
        await self._move()
        await self._producer.send_encoded(topic, records, partition)

    def flush(self) -> None:
        """Wait until everything sent before is delivered or has failed.

        Raises the first failure since the previous flush, once.
        """
        self._run(self._move_and_flush())
        self._raise_refusal()

    def _raise_refusal(self) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    # --------------------------------------------------------------------- transactions

    def init_transactions(self) -> None:
        """Take the transactional id over: fence its earlier producer, and abort what that has not
        committed. The first ``begin_transaction`` does it, too."""
        self._run(self._producer.init_transactions())

    def begin_transaction(self) -> None:
        """As ``stele.aio.Producer.begin_transaction``."""
        self._run(self._producer.begin_transaction())
        self._refusal = None

    def commit_transaction(self) -> None:
        """As ``stele.aio.Producer.commit_transaction``. A record that ``send`` could not accept
        makes the transaction abortable."""
        self._run(self._move_all())
        self._run(self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        """As ``stele.aio.Producer.abort_transaction``."""
        self._run(self._move_all())
        self._run(self._producer.abort_transaction())

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
            self._run(self._move_all())
            self._run(self._producer.abort_after(error))
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
        self._run(self._producer.send_group_offsets(group, offsets))

    def prepare_transaction(self) -> PreparedTransaction:
        """As ``stele.aio.Producer.prepare_transaction``."""
        self._run(self._move_all())
        return self._run(self._producer.prepare_transaction())

    def complete_transaction(self, prepared: PreparedTransaction) -> bool:
        """As ``stele.aio.Producer.complete_transaction``."""
        return self._run(self._producer.complete_transaction(prepared))

    def abort_prepared(self) -> bool:
        """As ``stele.aio.Producer.abort_prepared``."""
        return self._run(self._producer.abort_prepared())

    async def _move_all(self) -> None:
        await self._move()
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            self._producer.fail_transaction(refusal)

    # --------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Deliver everything, then release all resources. Raises as ``flush`` does. Idempotent."""
        if not self._is_open:
            return
        try:
            self._run(self._move_and_close())
            self._raise_refusal()
        finally:
            self.abort()

    async def _move_and_close(self) -> None:
        await self._move()
        await self._producer.close()

    def abort(self) -> None:
        """Release all resources at once. What is not delivered yet fails with ClosedError.
        Idempotent."""
        if not self._is_open:
            return
        try:
            self._run(self._producer.abort())
        finally:
            self._is_open = False

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
