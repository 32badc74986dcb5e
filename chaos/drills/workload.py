"""What writes and reads during a drill: an open load, and everything that is told about it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from chaos.drills.history import Acked, Failed, Read, Sent, Told
from chaos.drills.recorder import Recorder
from stele.aio import Consumer, Producer
from stele.config import Acks
from stele.errors import ApiError, DeliveryTimeoutError, SteleError
from stele.records import ConsumerRecord, RecordMetadata
from stele.security.options import SecurityOptions

_PADDING: Final = b"." * 100
_POLL_MS: Final = 200
_AFTER_AN_ERROR_S: Final = 0.2
_READ_BACK_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """How much is written, and how. ``per_s``: records per partition and second."""

    acks: Acks = "all"
    per_s: float = 20.0
    delivery_timeout_ms: int = 120_000


def value_of(producer: str, number: int) -> bytes:
    """A record's value, by which a reader knows it."""
    return b"%s %d %s" % (producer.encode(), number, _PADDING)


def name_of(value: bytes | None) -> tuple[str, int]:
    """The producer and the number of a value. ``("?", -1)`` for a value of nobody's."""
    words = (value or b"").split(b" ")
    if len(words) != 3 or not words[1].isdigit():
        return "?", -1
    return words[0].decode(errors="replace"), int(words[1])


class Writer:
    """Writes to every partition at a steady rate until it is stopped.

    If its producer fails for good it goes on with another one, under another name: records of the
    first that were not acknowledged are not sent again.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        load: Load,
        to: Recorder,
        security: SecurityOptions,
    ) -> None:
        self._bootstrap, self._topic, self._load = bootstrap, topic, load
        self._security = security
        self._partitions = range(partitions)
        self._recorder = to
        self._producer: Producer | None = None
        self._failed: list[Producer] = []  # former ones, which are not closed yet
        self._leaving: list[asyncio.Task[None]] = []  # each closes a producer that was replaced
        self._label = ""
        self._labels = (f"writer{number}" for number in itertools.count(1))
        self._numbers = [0] * partitions
        self._is_stopped = False
        self._has_moved = False
        self.acknowledged = [0] * partitions  # of each partition, so far

    async def run(self) -> None:
        """Write until ``stop``, then wait until everything is delivered or has failed."""
        try:
            await self._write()
            if self._producer is not None:
                await _closed(self._producer)
            await asyncio.gather(*self._leaving)
        finally:
            for task in self._leaving:
                task.cancel()
            for producer in self._failed:
                await producer.abort()
            if self._producer is not None:
                await self._producer.abort()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not self._is_stopped:
            producer = self._open_producer()
            for partition in self._partitions:
                await self._send(producer, partition)
            # After a wait for room in the buffer the load goes on from there, without a burst.
            due = max(due + 1 / self._load.per_s, loop.time())
            await asyncio.sleep(due - loop.time())

    def stop(self) -> None:
        """Send nothing more."""
        self._is_stopped = True

    def move(self, bootstrap: str, security: SecurityOptions) -> None:
        """From the next records on, use a producer that connects with these options. The former one
        delivers what it has."""
        self._bootstrap, self._security = bootstrap, security
        self._has_moved = True

    def _open_producer(self) -> Producer:
        if self._has_moved and self._producer is not None:
            self._leaving.append(asyncio.create_task(_closed(self._producer)))
            self._producer = None
        self._has_moved = False
        if self._producer is None or self._producer.has_failed:
            if self._producer is not None:
                self._failed.append(self._producer)
            self._label = next(self._labels)
            self._numbers = [0 for _ in self._numbers]
            self._producer = Producer(
                self._bootstrap,
                acks=self._load.acks,
                delivery_timeout_ms=self._load.delivery_timeout_ms,
                max_block_ms=self._load.delivery_timeout_ms,
                on_wait=teller(self._recorder, self._label),
                **self._security,
            )
        return self._producer

    async def _send(self, producer: Producer, partition: int) -> None:
        number, label = self._numbers[partition], self._label
        self._numbers[partition] += 1
        self._recorder.add(Sent(self._recorder.now_ms, label, partition, number))
        value = value_of(label, number)
        try:
            future = await producer.send(self._topic, value, partition=partition)
        except SteleError as error:
            add_failure(self._recorder, label, partition, number, error)
            return
        future.add_done_callback(lambda done: self._done(done, label, partition, number))

    def _done(
        self, done: asyncio.Future[RecordMetadata], label: str, partition: int, number: int
    ) -> None:
        add_outcome(self._recorder, done, (label, partition, number))
        if not done.cancelled() and done.exception() is None:
            self.acknowledged[partition] += 1


async def probe(
    bootstrap: str,
    topic: str,
    partitions: int,
    label: str,
    recorder: Recorder,
    security: SecurityOptions,
) -> None:
    """Ask once in each partition whether a write is taken: each ends soon, one way or the other."""
    producer = Producer(
        bootstrap,
        acks="all",
        request_timeout_ms=1_000,
        delivery_timeout_ms=3_000,
        max_block_ms=20_000,  # paused brokers may be asked first for the topic's leaders
        on_wait=teller(recorder, label),
        **security,
    )
    waiting = []
    for partition in range(partitions):
        recorder.add(Sent(recorder.now_ms, label, partition, 0))
        try:
            future = await producer.send(topic, value_of(label, 0), partition=partition)
        except SteleError as error:
            add_failure(recorder, label, partition, 0, error)
            continue
        future.add_done_callback(partial(_note_probe, recorder, label, partition))
        waiting.append(future)
    await asyncio.gather(*waiting, return_exceptions=True)
    await _closed(producer)


def _note_probe(
    recorder: Recorder, label: str, partition: int, done: asyncio.Future[RecordMetadata]
) -> None:
    add_outcome(recorder, done, (label, partition, 0))


async def _closed(producer: Producer) -> None:
    try:
        await producer.close()
    except SteleError:
        pass  # each record's own outcome is in the history


def teller(recorder: Recorder, client: str) -> Callable[[str], None]:
    """An ``on_wait`` that takes down what a client says."""
    return lambda reason: recorder.add(Told(recorder.now_ms, client, reason))


def add_outcome(
    recorder: Recorder, done: asyncio.Future[RecordMetadata], name: tuple[str, int, int]
) -> None:
    """Take down what became of a record. Its name: producer, partition, number."""
    label, partition, number = name
    if done.cancelled():
        return
    error = done.exception()
    if error is None:
        recorder.add(Acked(recorder.now_ms, label, partition, number, done.result().offset))
    else:
        add_failure(recorder, label, partition, number, error)


def add_failure(
    recorder: Recorder, label: str, partition: int, number: int, error: BaseException
) -> None:
    """Only a time-out tells whether the record may be written; after others it may."""
    code = error.code.name if isinstance(error, ApiError) else type(error).__name__
    maybe = not isinstance(error, DeliveryTimeoutError) or error.maybe_written
    recorder.add(Failed(recorder.now_ms, label, partition, number, _reason(error, code), maybe))


def _reason(error: BaseException, code: str) -> str:
    """The refusal that a time-out was about, if its text names one; else the error's own name."""
    for name in ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_ENOUGH_REPLICAS"):
        if name in str(error):
            return name
    return code


class Reader:
    """Reads along in every partition until it is stopped."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        label: str,
        recorder: Recorder,
        security: SecurityOptions,
    ) -> None:
        self._bootstrap, self._topic, self._label = bootstrap, topic, label
        self._security = security
        self._partitions = [(topic, number) for number in range(partitions)]
        self._recorder = recorder
        self._is_stopped = False
        self._has_moved = False
        self.read_to: dict[int, int] = {}  # of each partition, the offset after the last one read

    async def run(self) -> None:
        while not self._is_stopped:
            await self._read()

    async def _read(self) -> None:
        """With one consumer, until ``stop`` or ``move``."""
        self._has_moved = False
        async with Consumer(
            self._bootstrap,
            auto_offset_reset="earliest",
            on_wait=teller(self._recorder, self._label),
            **self._security,
        ) as consumer:
            consumer.assign(self._partitions)
            for partition, offset in self.read_to.items():
                consumer.seek(self._topic, partition, offset)
            while not (self._is_stopped or self._has_moved):
                try:
                    records = await consumer.poll(timeout_ms=_POLL_MS)
                except SteleError as error:
                    teller(self._recorder, self._label)(str(error))
                    await asyncio.sleep(_AFTER_AN_ERROR_S)
                    continue
                for record in records:
                    self._recorder.add(read_event(self._recorder, self._label, record))
                    self.read_to[record.partition] = record.offset + 1

    def stop(self) -> None:
        self._is_stopped = True

    def move(self, bootstrap: str, security: SecurityOptions) -> None:
        """Go on with a consumer that connects with these options."""
        self._bootstrap, self._security = bootstrap, security
        self._has_moved = True


def read_event(recorder: Recorder, label: str, record: ConsumerRecord) -> Read:
    producer, number = name_of(record.value)
    return Read(recorder.now_ms, label, record.partition, record.offset, producer, number)


async def read_back(
    bootstrap: str,
    topic: str,
    partitions: int,
    label: str,
    recorder: Recorder,
    security: SecurityOptions,
) -> Mapping[int, int]:
    """Read everything from the beginning to the present end. Returns the end of each partition.

    Raises SteleError if it cannot be read.
    """
    places = [(topic, number) for number in range(partitions)]
    async with Consumer(
        bootstrap, auto_offset_reset="earliest", on_wait=teller(recorder, label), **security
    ) as consumer:
        consumer.assign(places)
        ends = {each.partition: end for each, end in (await consumer.end_offsets(places)).items()}
        reading = {number for number, end in ends.items() if end > 0}
        try:
            async with asyncio.timeout(_READ_BACK_S):
                while reading:
                    for record in await consumer.poll(timeout_ms=_POLL_MS):
                        if record.offset < ends[record.partition]:
                            recorder.add(read_event(recorder, label, record))
                    for each in sorted(reading):
                        if await consumer.position(topic, each) >= ends[each]:
                            reading.discard(each)
        except TimeoutError:
            raise SteleError(
                f"partitions {sorted(reading)} could not be read back within {_READ_BACK_S:.0f} s"
            ) from None
    return ends
