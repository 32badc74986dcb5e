"""The synchronous clients: the asyncio clients on one background thread.

All clients of a process share one event loop in one daemon thread. Methods may be called from any
thread, those of a consumer from one thread at a time.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

import uvloop

from stele import aio
from stele.admin.admin import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    NewTopic,
    PartitionReassignment,
    TopicDescription,
)
from stele.admin.features import UPGRADE, FeatureDescription, UpdatedFeature, UpgradeType
from stele.admin.quorum import QuorumDescription
from stele.config import ClientOptions, ClientWorld, ConsumerOptions, ProducerOptions
from stele.errors import ClosedError, SteleError
from stele.ids import TopicPartition
from stele.producer.producer import HeadersArgument
from stele.records import ConsumerRecord, OffsetAndTimestamp, RecordMetadata

Result = TypeVar("Result")

MAX_HANDED_OVER = 10_000
"""The most records on their way from the caller's thread to the loop. Beyond it the caller
waits."""
PUMP_INTERVAL_S = 0.001
MAX_IDLE_ROUNDS = 5
"""After this many rounds without a record the loop waits until the next record wakes it."""


class _LoopThread:
    """The event loop of all clients of the process. The first client starts it.

    It runs until the process ends, because gRPC's poller stays bound to its first loop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = uvloop.new_event_loop()
                thread = threading.Thread(
                    target=self._run, args=(self._loop,), name="stele-client", daemon=True
                )
                thread.start()
                atexit.register(self._stop, self._loop, thread)
            return self._loop

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    @staticmethod
    def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        # Ctrl-C may come while the process ends. The daemon thread need not end.
        with contextlib.suppress(KeyboardInterrupt):
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=1.0)


_shared = _LoopThread()


class Delivery:
    """The result of ``Producer.send``: the methods of a future at a fraction of its cost.

    One lock serves all deliveries. It is held for a few instructions at a time.
    """

    __slots__ = ("_callbacks", "_error", "_metadata")

    _resolved = threading.Condition(threading.Lock())
    _waiters = 0  # threads in ``result`` or ``exception``; guarded by the lock

    def __init__(self) -> None:
        self._metadata: RecordMetadata | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Delivery], object]] | None = None

    def done(self) -> bool:
        return self._metadata is not None or self._error is not None

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait for the acknowledgement. Raises the record's error, or TimeoutError."""
        self._wait(timeout_s)
        if self._error is not None:
            raise self._error
        assert self._metadata is not None
        return self._metadata

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait for the record's error; None if it was acknowledged. Raises TimeoutError."""
        self._wait(timeout_s)
        return self._error

    def add_done_callback(self, function: Callable[[Delivery], object]) -> None:
        """Call it with this delivery once done: on the client's thread, or here if it is done."""
        with Delivery._resolved:
            if not self.done():
                self._callbacks = [*(self._callbacks or ()), function]
                return
        function(self)

    def set_result(self, metadata: RecordMetadata) -> None:
        """Only the producer calls this."""
        self._resolve(metadata, None)

    def set_exception(self, error: BaseException) -> None:
        """Only the producer calls this."""
        self._resolve(None, error)

    def _resolve(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        with Delivery._resolved:
            self._metadata, self._error = metadata, error
            callbacks, self._callbacks = self._callbacks, None
            if Delivery._waiters:
                Delivery._resolved.notify_all()
        for function in callbacks or ():
            function(self)

    def _wait(self, timeout_s: float | None) -> None:
        if self.done():
            return
        with Delivery._resolved:
            Delivery._waiters += 1
            try:
                if not Delivery._resolved.wait_for(self.done, timeout_s):
                    raise TimeoutError(f"not acknowledged within {timeout_s} s")
            finally:
                Delivery._waiters -= 1


class _Face:
    """The common base of the three synchronous clients."""

    def __init__(self) -> None:
        self._loop = _shared.get()
        self._is_open = True

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and wait for it. Ctrl-C cancels it."""
        if not self._is_open:
            work.close()
            raise ClosedError("the client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _do(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a plain function on the loop and wait."""

        async def call() -> Result:
            return function(*arguments)

        return self._run(call())

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Producer(_Face):
    """Writes records.

    >>> with Producer("127.0.0.1:9092") as producer:
    ...     delivery = producer.send("orders", b"value", key=b"key")
    ...     producer.flush()
    ...     print(delivery.result().offset)

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

    def flush(self) -> None:
        """Wait until everything sent before is delivered or has failed.

        Raises the first failure since the previous flush, once.
        """
        self._run(self._move_and_flush())
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def close(self) -> None:
        """Deliver everything, then release all resources. Raises as ``flush`` does. Idempotent."""
        if not self._is_open:
            return
        try:
            self.flush()
        finally:
            self.abort()

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


class Consumer(_Face):
    """Reads records.

    >>> with Consumer("127.0.0.1:9092", auto_offset_reset="earliest") as consumer:
    ...     consumer.assign([("orders", 0)])
    ...     for record in consumer.poll(timeout_ms=1000):
    ...         print(record.offset, record.value)

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
        """Release all resources. Idempotent."""
        if not self._is_open:
            return
        try:
            self._run(self._consumer.close())
        finally:
            self._is_open = False

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions from now on. Partitions that stay keep their position."""
        names = [TopicPartition(*each) for each in partitions]
        self._put_back()
        self._do(self._consumer.assign, names)

    def assignment(self) -> list[TopicPartition]:
        return self._do(self._consumer.assignment)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """The next record returned is the one at ``offset``, or the first one after it."""
        self._put_back()
        self._do(self._consumer.seek, topic, partition, offset)

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

    def poll(
        self, max_records: int | None = None, timeout_ms: float = 1000
    ) -> list[ConsumerRecord]:
        """Records of the assigned partitions. Empty after ``timeout_ms`` without any."""
        self._put_back()
        return self._run(self._consumer.poll(max_records, timeout_ms))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record. Waits for it without a limit."""
        while not self._ahead:
            self._ahead.extend(self._run(self._consumer.poll(timeout_ms=1000)))
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

    def _put_back(self) -> None:
        """Drop the records that the iterator has polled ahead. They are read again."""
        first: dict[tuple[str, int], int] = {}
        for record in self._ahead:
            first.setdefault((record.topic, record.partition), record.offset)
        self._ahead.clear()
        for (topic, partition), offset in first.items():
            self._do(self._consumer.seek, topic, partition, offset)


class Admin(_Face):
    """Administrates a cluster. :class:`stele.admin.admin.Admin` describes the methods."""

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__()
        self._admin = self._do(lambda: aio.Admin(bootstrap_servers, world=world, **options))

    def close(self) -> None:
        """Release all resources. Idempotent."""
        if not self._is_open:
            return
        try:
            self._run(self._admin.close())
        finally:
            self._is_open = False

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> list[CreatedTopic]:
        return self._run(
            self._admin.create_topics(topics, validate_only=validate_only, request_id=request_id)
        )

    def delete_topics(self, names: Sequence[str], *, request_id: bytes | None = None) -> None:
        self._run(self._admin.delete_topics(names, request_id=request_id))

    def describe_topics(
        self, names: Sequence[str], *, linearizable: bool = True
    ) -> list[TopicDescription]:
        return self._run(self._admin.describe_topics(names, linearizable=linearizable))

    def list_topics(self, *, linearizable: bool = True) -> list[TopicDescription]:
        return self._run(self._admin.list_topics(linearizable=linearizable))

    def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> None:
        self._run(
            self._admin.create_partitions(
                counts, assignments, validate_only=validate_only, request_id=request_id
            )
        )

    def delete_records(self, offsets: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        return self._run(self._admin.delete_records(offsets))

    def unregister_broker(self, broker_id: int, *, request_id: bytes | None = None) -> None:
        self._run(self._admin.unregister_broker(broker_id, request_id=request_id))

    def elect_leaders(
        self,
        partitions: Sequence[tuple[str, int]] = (),
        *,
        unclean: bool = False,
        request_id: bytes | None = None,
    ) -> list[TopicPartition]:
        return self._run(
            self._admin.elect_leaders(partitions, unclean=unclean, request_id=request_id)
        )

    def alter_partition_reassignments(
        self,
        targets: Mapping[tuple[str, int], Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        request_id: bytes | None = None,
    ) -> None:
        self._run(
            self._admin.alter_partition_reassignments(
                targets,
                allow_replication_factor_change=allow_replication_factor_change,
                request_id=request_id,
            )
        )

    def list_partition_reassignments(
        self, partitions: Sequence[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        return self._run(self._admin.list_partition_reassignments(partitions))

    def describe_cluster(self, *, linearizable: bool = True) -> ClusterDescription:
        return self._run(self._admin.describe_cluster(linearizable=linearizable))

    def describe_quorum(self) -> QuorumDescription:
        return self._run(self._admin.describe_quorum())

    def transfer_leadership(self, voter_id: int) -> int:
        return self._run(self._admin.transfer_leadership(voter_id))

    def add_voter(
        self, voter_id: int, directory_id: str, endpoint: str, *, cluster_id: str = ""
    ) -> None:
        self._run(self._admin.add_voter(voter_id, directory_id, endpoint, cluster_id=cluster_id))

    def remove_voter(self, voter_id: int, directory_id: str, *, cluster_id: str = "") -> None:
        self._run(self._admin.remove_voter(voter_id, directory_id, cluster_id=cluster_id))

    def describe_features(self, *, linearizable: bool = True) -> list[FeatureDescription]:
        return self._run(self._admin.describe_features(linearizable=linearizable))

    def update_features(
        self,
        levels: Mapping[str, int],
        upgrade_type: UpgradeType = UPGRADE,
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> list[UpdatedFeature]:
        return self._run(
            self._admin.update_features(
                levels, upgrade_type, validate_only=validate_only, request_id=request_id
            )
        )

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> None:
        self._run(
            self._admin.alter_configs(changes, validate_only=validate_only, request_id=request_id)
        )

    def describe_configs(
        self, resources: Sequence[ConfigResource], *, linearizable: bool = True
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        return self._run(self._admin.describe_configs(resources, linearizable=linearizable))
