"""A topic as a local dictionary, on asyncio."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, ParamSpec, Self, TypeAlias, Unpack

from stele.config import (
    ClientConfig,
    ClientOptions,
    ClientWorld,
    IsolationLevel,
    real_world,
)
from stele.consumer.consumer import Consumer
from stele.errors import (
    ApiError,
    ClosedError,
    ConfigError,
    ErrorCode,
    LogTruncationError,
    OffsetOutOfRangeError,
    UnreachableError,
)
from stele.ids import TopicPartition
from stele.producer.producer import Producer
from stele.records import ConsumerRecord, RecordMetadata
from stele.topic_view.entries import Entries, Evicted, Reason
from stele.user_functions import call_user

log = logging.getLogger(__name__)

P = ParamSpec("P")

TTL_HEADER: Final = "ttl-ms"
"""The header of a record that says how long its key lives, from the record's timestamp on: a number
of milliseconds, or ``none``. Without it the view's default counts."""

_POLL_MS: Final = 500
_POLL_RECORDS: Final = 2_000
_EVICTIONS_AT_A_TIME: Final = 2_000
_PAUSE_S: Final = 0.5


class Expiry(enum.Enum):
    """How long a key lives where no number is given."""

    DEFAULT = "default"
    """As long as the view's ``default_ttl_ms``."""
    NONE = "none"
    """For ever."""


Ttl: TypeAlias = int | Literal[Expiry.DEFAULT, Expiry.NONE]

OnUpdate = Callable[[bytes, bytes | None, bytes], object]
"""Called with key, earlier value (None: there was none) and new value."""
OnEviction = Callable[[bytes, bytes, Reason], object]
"""Called with key, last value and the reason."""


class TopicView(Mapping[bytes, bytes]):
    """The last value of each key of a topic, kept up to date. Use it from one event loop.

    >>> async with TopicView("127.0.0.1:9092", "prices", default_ttl_ms=60_000) as prices:
    ...     print(prices.get(b"EUR"))
    ...     await prices.put(b"EUR", b"1.08")

    It is a ``Mapping`` of bytes to bytes. The topic is best a compacted one
    (``cleanup.policy=compact``). Each view reads all of its partitions, and belongs to no group. A
    key that is in several partitions has the value that was read last. Records without a key are
    passed over.

    **Time to live.** A key lives from the timestamp of its record on for as long as the record's
    header ``ttl-ms`` says, and otherwise for ``default_ttl_ms``. The view does not show an expired
    key. The janitor takes it out of memory and calls ``on_eviction``. Expiry changes nothing in the
    topic: other views decide by their own defaults, and ``retention.ms`` with
    ``cleanup.policy=compact,delete`` frees the disk. Times are those of the records, so all views
    with the same default agree as far as their clocks do.

    **Callbacks** run on the event loop, in the order of the records of a partition. What they raise
    is logged, and the view goes on.

    **Errors.** A batch that cannot be read stops the view. From then on every read raises the
    reason, because the values may be old.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        default_ttl_ms: int | None = None,
        janitor_interval_ms: int = 1_000,
        on_update: OnUpdate | None = None,
        on_eviction: OnEviction | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        world: ClientWorld | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """``default_ttl_ms``: how long a key lives, in milliseconds. None: for ever.

        ``janitor_interval_ms``: how often expired keys are taken out of memory. 0: there is no
        janitor, and ``evict_expired`` does its work.

        ``on_update(key, earlier value or None, new value)`` is called for each record,
        ``on_eviction(key, last value, reason)`` for each key that leaves.

        With ``isolation_level="read_committed"`` the view shows nothing of open and aborted
        transactions. Records behind the first one of an open transaction wait for its end, and so
        does ``put``.

        ``options`` are the fields of :class:`stele.config.ClientConfig`. Raises ConfigError.
        """
        if default_ttl_ms is not None and default_ttl_ms <= 0:
            raise ConfigError(f"default_ttl_ms={default_ttl_ms} must be positive, or None")
        if janitor_interval_ms < 0:
            raise ConfigError(f"janitor_interval_ms={janitor_interval_ms} must not be negative")
        self.topic = topic
        config = ClientConfig(**options)
        self._world = world or real_world(config.client_security())
        self._default_ttl_ms = default_ttl_ms
        self._janitor_interval_s = janitor_interval_ms / 1000
        self._on_update = on_update
        self._on_eviction = on_eviction
        self._entries = Entries()
        self._consumer = Consumer(
            bootstrap_servers,
            world=self._world,
            auto_offset_reset="none",
            isolation_level=isolation_level,
            **options,
        )
        self._make_producer = partial(
            Producer, bootstrap_servers, world=self._world, linger_ms=0, **options
        )
        self._producer: Producer | None = None
        self._timeout_s = config.default_api_timeout_ms / 1000
        self._topic_id = b""
        # By partition: the end of the log when its reading began. Gone once it is reached.
        self._targets: dict[int, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._progress = asyncio.Event()  # set and made anew whenever the positions have moved
        self._failure: Exception | None = None
        self._closed = False

    # -------------------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to follow the topic, and return when the view has everything that was in the topic
        at the call. The ``with`` block calls it.

        Raises ApiError if the topic is not there, or if nothing of it comes within
        ``default_api_timeout_ms``.
        """
        await self._take_partitions()
        self._spawn(self._follow())
        if self._janitor_interval_s:
            self._spawn(self._keep_clean())
        await self._catch_up()

    async def _catch_up(self) -> None:
        while self._targets:
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._until(partial(self._is_beyond, self._positions()))
            except TimeoutError:
                reasons = "; ".join(f"{name}: {why}" for name, why in self._consumer.why().items())
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"no record of {self.topic} was read within {self._timeout_s:g} s: {reasons}",
                ) from None

    def _is_beyond(self, positions: list[int]) -> bool:
        return not self._targets or self._positions() != positions

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                log.error("the view of %s stops", self.topic, exc_info=error)
                self._failure = error
                self._tell_progress()

        self._tasks.append(asyncio.get_running_loop().create_task(guarded()))

    async def close(self) -> None:
        """Stop following the topic, and forget everything. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._tell_progress()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._consumer.close()
        if self._producer is not None:
            await self._producer.close()

    @property
    def is_caught_up(self) -> bool:
        """Whether the view has everything that was in the topic when its reading began. It is False
        again while a partition is read once more from its start.
        """
        return not self._targets

    # ----------------------------------------------------------------------- reading

    def __getitem__(self, key: bytes) -> bytes:
        """Raises KeyError, and the error that stopped the view."""
        self._check()
        value = self._entries.get(key, self._now_ms())
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[bytes]:
        """The keys as they are now."""
        return iter([key for key, _ in self.snapshot()])

    def __len__(self) -> int:
        """The number of keys. It counts each expired key until the janitor comes."""
        self._check()
        return len(self._entries)

    def snapshot(self) -> list[tuple[bytes, bytes]]:
        """All keys and values at this moment, without expired ones."""
        self._check()
        return list(self._entries.items(self._now_ms()))

    # ----------------------------------------------------------------------- writing

    async def put(self, key: bytes, value: bytes, ttl_ms: Ttl = Expiry.DEFAULT) -> RecordMetadata:
        """Write a record to the topic, and return when this view has it, too.

        ``ttl_ms``: how long the key lives, in milliseconds, or ``Expiry.DEFAULT`` or
        ``Expiry.NONE`` (for ever).

        Raises the producer's errors, and ApiError REQUEST_TIMED_OUT if the record is written but
        the view does not read it within ``default_api_timeout_ms``.
        """
        if isinstance(ttl_ms, int) and ttl_ms <= 0:
            raise ConfigError(f"ttl_ms={ttl_ms} must be positive, Expiry.DEFAULT or Expiry.NONE")
        if ttl_ms is Expiry.DEFAULT:
            return await self._write(key, value, ())
        text = str(ttl_ms) if isinstance(ttl_ms, int) else Expiry.NONE.value
        return await self._write(key, value, ((TTL_HEADER, text.encode()),))

    async def delete(self, key: bytes) -> RecordMetadata:
        """Write a tombstone, and return when this view has it, too. Raises as ``put``."""
        return await self._write(key, None, ())

    async def _write(
        self, key: bytes, value: bytes | None, headers: tuple[tuple[str, bytes], ...]
    ) -> RecordMetadata:
        self._check()
        if self._producer is None:
            self._producer = self._make_producer()
        delivery = await self._producer.send(self.topic, value, key=key, headers=headers)
        written = await delivery
        name, offset = TopicPartition(self.topic, written.partition), written.offset
        timeout_s = self._timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._until(lambda: self._position(name.partition) > offset)
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the record is in {name} at offset {offset}, but the view has not read it "
                f"within {timeout_s} s",
            ) from None
        return written

    # --------------------------------------------------------------------- following

    async def _take_partitions(self) -> None:
        """Read all partitions from their starts."""
        numbers = await self._consumer.partitions_for(self.topic)
        self._topic_id = self._consumer.topic_id(self.topic)
        self._consumer.assign([(self.topic, number) for number in numbers])
        await self._begin_again(numbers)

    async def _begin_again(self, numbers: list[int]) -> None:
        for number in numbers:
            self._entries.begin_again(number)
            self._targets.setdefault(number, 0)  # so that the view does not count as caught up
        names = [(self.topic, number) for number in numbers]
        self._consumer.seek_to_beginning(*names)
        for name, end in (await self._consumer.end_offsets(names)).items():
            self._targets[name.partition] = end

    async def _follow(self) -> None:
        while True:
            try:
                records = await self._consumer.poll(_POLL_RECORDS, timeout_ms=_POLL_MS)
                if await self._is_same_topic():
                    for record in records:
                        self._apply(record)
                    self._settle()
            except (OffsetOutOfRangeError, LogTruncationError) as error:
                log.warning("%s: the view reads the partition again from its start", error)
                await self._repeat(self._begin_again, [error.partition])
            except ApiError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                self._lose_everything()
                await self._repeat(self._take_partitions)
            self._tell_progress()

    async def _repeat(
        self, work: Callable[P, Coroutine[Any, Any, None]], *arguments: P.args, **named: P.kwargs
    ) -> None:
        """Repeat the work until it succeeds. Each attempt takes its own time, and reports what it
        waits for."""
        while True:
            try:
                return await work(*arguments, **named)
            except ApiError as error:
                if not error.code.retriable:
                    raise
            except UnreachableError:
                pass
            await asyncio.sleep(_PAUSE_S)

    async def _is_same_topic(self) -> bool:
        """Whether the polled records are of the topic that the view has. If the topic was created
        again, begin with the new one. If it has more partitions, follow them, too.
        """
        known = await self._consumer.partitions_for(self.topic)
        if self._consumer.topic_id(self.topic) != self._topic_id:
            log.warning("the topic %s was created again: the view reads the new topic", self.topic)
            self._lose_everything()
            await self._repeat(self._take_partitions)
            return False
        assigned = {each.partition for each in self._consumer.assignment()}
        new = [number for number in known if number not in assigned]
        if new:
            self._consumer.assign([(self.topic, number) for number in known])
            await self._repeat(self._begin_again, new)
        return True

    def _lose_everything(self) -> None:
        self._targets.clear()
        for name in self._consumer.assignment():
            self._entries.begin_again(name.partition)
            self._tell_evicted(self._entries.settle(name.partition))

    def _settle(self) -> None:
        for number, target in list(self._targets.items()):
            if self._position(number) >= target:
                del self._targets[number]
                self._tell_evicted(self._entries.settle(number))

    def _positions(self) -> list[int]:
        return [self._position(name.partition) for name in sorted(self._consumer.assignment())]

    def _position(self, number: int) -> int:
        """The offset up to which the view has the partition; -1: not known yet."""
        position = self._consumer.known_position(self.topic, number)
        return -1 if position is None else position

    def _apply(self, record: ConsumerRecord) -> None:
        key = record.key
        if key is None:
            return
        if record.value is None:
            evicted = self._entries.delete(key)
            self._tell_evicted([] if evicted is None else [evicted])
            return
        earlier = self._entries.get(key, self._now_ms())
        expires_at_ms = self._expires_at_ms(record)
        self._entries.put(key, record.value, record.partition, expires_at_ms)
        if self._on_update is not None:
            self._call(self._on_update, key, earlier, record.value)

    def _expires_at_ms(self, record: ConsumerRecord) -> int | None:
        ttl_ms = self._default_ttl_ms
        for name, text in record.headers:
            if name == TTL_HEADER:
                if text == Expiry.NONE.value.encode():
                    ttl_ms = None
                elif text is not None and text.isdigit() and len(text) < 19:
                    ttl_ms = int(text)
                else:
                    log.warning("%s: %r is no time to live; the default counts", record, text)
        return None if ttl_ms is None else record.timestamp_ms + ttl_ms

    # -------------------------------------------------------------------- the janitor

    async def _keep_clean(self) -> None:
        while True:
            is_done = self.evict_expired() < _EVICTIONS_AT_A_TIME
            await asyncio.sleep(self._janitor_interval_s if is_done else 0)

    def evict_expired(self, limit: int = _EVICTIONS_AT_A_TIME) -> int:
        """Take up to ``limit`` expired keys out of memory, and call ``on_eviction`` for them.
        Returns their number.
        """
        evicted = self._entries.expire(self._now_ms(), limit)
        self._tell_evicted(evicted)
        return len(evicted)

    # ------------------------------------------------------------------------- helpers

    def _tell_evicted(self, evicted: list[Evicted]) -> None:
        if self._on_eviction is not None:
            for each in evicted:
                self._call(self._on_eviction, *each)

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        what = f"a callback of the view of {self.topic}, for key {arguments[0]!r},"
        call_user(callback, *arguments, what=what)

    def _now_ms(self) -> int:
        return self._world.clock.time_ms()

    def _tell_progress(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Raises what stopped the view, ClosedError."""
        while not is_so():
            self._check()
            await self._progress.wait()
        self._check()

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"the view of {self.topic} is closed")
        if self._failure is not None:
            raise self._failure
