"""The clients of ``bench records``: each sends or reads as many records as it can in one process.

The CPU is of the whole process, so the threads of librdkafka and of our synchronous clients count.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from stele import Consumer as SyncConsumer
from stele import Producer as SyncProducer
from stele import ProducerRecord, aio

Answer = dict[str, float]

FLUSH_TIMEOUT_S: Final = 60.0
_KEYS: Final = tuple(b"%08d" % number for number in range(1_000))
_BURST: Final = 1_000  # records between two looks at the clock
_POLL_RECORDS: Final = 5_000
_LIMITS: Final = {"linger_ms": 5, "batch_size": 256 * 1024, "buffer_memory": 32 * 1024 * 1024}


class Watch:
    """The time, and the CPU time of this process, since the start of a measurement."""

    def __init__(self, seconds: float) -> None:
        self._began = time.perf_counter()
        self._cpu_began = time.process_time()
        self._until = self._began + seconds

    def is_over(self) -> bool:
        return time.perf_counter() >= self._until

    def answer(self, records: int) -> Answer:
        return {
            "records": records,
            "seconds": time.perf_counter() - self._began,
            "cpu_s": time.process_time() - self._cpu_began,
        }


# ------------------------------------------------------------------------------------ sending


class Sender:
    """Each measurement ends when all records are acknowledged."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._bootstrap: str = job["bootstrap"]
        self._topic: str = job["topic"]
        self._value = bytes(job["record_bytes"])

    def _records(self) -> list[ProducerRecord]:
        return [
            ProducerRecord(self._topic, self._value, key)
            for key in itertools.islice(itertools.cycle(_KEYS), _BURST)
        ]


class SyncSend(Sender):
    """``stele.Producer.send``, one call for each record."""

    async def throughput(self, seconds: float) -> Answer:
        topic, value, sent = self._topic, self._value, 0
        with SyncProducer(self._bootstrap, acks="all", **_LIMITS) as producer:  # type: ignore[arg-type]
            producer.partitions_for(topic)
            send, watch = producer.send, Watch(seconds)
            while not watch.is_over():
                for key in _KEYS:
                    send(topic, value, key)
                sent += len(_KEYS)
            producer.flush()
            return watch.answer(sent)


class SyncSendAll(Sender):
    """``stele.Producer.send_all``, one call for 1,000 records."""

    async def throughput(self, seconds: float) -> Answer:
        records, sent = self._records(), 0
        with SyncProducer(self._bootstrap, acks="all", **_LIMITS) as producer:  # type: ignore[arg-type]
            producer.partitions_for(self._topic)
            watch = Watch(seconds)
            while not watch.is_over():
                producer.send_all(records)
                sent += len(records)
            producer.flush()
            return watch.answer(sent)


class AioSend(Sender):
    """``stele.aio.Producer.send``, one call for each record."""

    async def throughput(self, seconds: float) -> Answer:
        topic, value, sent = self._topic, self._value, 0
        async with aio.Producer(self._bootstrap, acks="all", **_LIMITS) as producer:  # type: ignore[arg-type]
            await producer.partitions_for(topic)
            send, watch = producer.send, Watch(seconds)
            while not watch.is_over():
                for key in _KEYS:
                    await send(topic, value, key)
                sent += len(_KEYS)
                await asyncio.sleep(0)  # ``send`` itself does not wait while there is room
            await producer.flush()
            return watch.answer(sent)


class AioSendAll(Sender):
    """``stele.aio.Producer.send_all``, one call for 1,000 records."""

    async def throughput(self, seconds: float) -> Answer:
        records, sent = self._records(), 0
        async with aio.Producer(self._bootstrap, acks="all", **_LIMITS) as producer:  # type: ignore[arg-type]
            await producer.partitions_for(self._topic)
            watch = Watch(seconds)
            while not watch.is_over():
                await producer.send_all(records)
                sent += len(records)
            await producer.flush()
            return watch.answer(sent)


class ConfluentProduce(Sender):
    """``confluent_kafka.Producer.produce`` for each record, with or without a callback each. Ours
    has a delivery for each."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__(job)
        self._has_callback: bool = job["has_callback"]
        self._delivered = 0
        self._failure: object = None

    def _on_delivery(self, error: object, _: object) -> None:
        self._failure = self._failure or error
        self._delivered += 1

    async def throughput(self, seconds: float) -> Answer:
        from confluent_kafka import Producer as ConfluentProducer

        producer = ConfluentProducer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": _LIMITS["linger_ms"],
                "batch.size": _LIMITS["batch_size"],
                "queue.buffering.max.kbytes": _LIMITS["buffer_memory"] // 1024,
                "queue.buffering.max.messages": 10_000_000,
            }
        )
        producer.list_topics(self._topic, FLUSH_TIMEOUT_S)
        more: dict[str, Any] = {"on_delivery": self._on_delivery} if self._has_callback else {}
        topic, value, sent = self._topic, self._value, 0
        self._delivered, produce, watch = 0, producer.produce, Watch(seconds)
        while not watch.is_over():
            for key in _KEYS:
                while True:
                    try:
                        produce(topic, value, key, **more)
                        break
                    except BufferError:
                        producer.poll(0.001)
            sent += len(_KEYS)
            producer.poll(0)
        missing = producer.flush(FLUSH_TIMEOUT_S)
        if missing or self._failure or (more and self._delivered != sent):
            raise RuntimeError(f"{missing} of {sent} records were not delivered: {self._failure}")
        return watch.answer(sent)


# ------------------------------------------------------------------------------------ reading


class Reader:
    """Reads the topic from its beginning to its end, again and again."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._bootstrap: str = job["bootstrap"]
        self._topic: str = job["topic"]
        self._partitions: int = job["partitions"]
        self._available: int = job["available"]

    def _measured(
        self, seconds: float, poll: Callable[[int], int], rewind: Callable[[], object]
    ) -> Answer:
        """``poll`` gets the number of records that are left, and returns how many it has read."""
        found = of_pass = 0
        watch = Watch(seconds)
        while not watch.is_over():
            of_pass += (count := poll(self._available - of_pass))
            found += count
            if of_pass > self._available:
                raise RuntimeError(f"{of_pass} records were read of {self._available}")
            if of_pass == self._available:
                rewind()
                of_pass = 0
        return watch.answer(found)


class OwnReader(Reader):
    """``stele.Consumer``."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__(job)
        self._form: str = job["form"]

    async def throughput(self, seconds: float) -> Answer:
        with SyncConsumer(self._bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(self._topic, number) for number in range(self._partitions)])
            poll = {"objects": _objects, "arrow": _arrow, "pandas": _pandas}[self._form]
            return self._measured(seconds, lambda _: poll(consumer), consumer.seek_to_beginning)


def _objects(consumer: SyncConsumer) -> int:
    records = consumer.poll(_POLL_RECORDS)
    for record in records:
        record.value  # noqa: B018 - a program looks at the value of each record
    return len(records)


def _arrow(consumer: SyncConsumer) -> int:
    rows: int = consumer.poll_arrow().num_rows
    return rows


def _pandas(consumer: SyncConsumer) -> int:
    return len(consumer.poll_arrow().to_pandas())


class ConfluentReader(Reader):
    """``confluent_kafka.Consumer.consume``. It has neither Arrow nor pandas: columns are made from
    its messages."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__(job)
        self._form: str = job["form"]

    async def throughput(self, seconds: float) -> Answer:
        from confluent_kafka import Consumer as ConfluentConsumer
        from confluent_kafka import TopicPartition

        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                # Its default is a pause of a second whenever 100,000 messages wait.
                "fetch.queue.backoff.ms": 5,
            }
        )
        beginnings = [TopicPartition(self._topic, number, 0) for number in range(self._partitions)]

        def rewind() -> None:
            consumer.assign(beginnings)

        rewind()
        take = {"objects": _values, "arrow": _table, "pandas": _frame}[self._form]

        def poll(left: int) -> int:
            messages = consumer.consume(min(_POLL_RECORDS, left), 1.0)  # it waits for so many
            for each in messages:
                if each.error() is not None:
                    raise RuntimeError(each.error())
            return take(messages)

        try:
            return self._measured(seconds, poll, rewind)
        finally:
            consumer.close()


def _values(messages: list[Any]) -> int:
    for each in messages:
        each.value()
    return len(messages)


def _columns(messages: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    yield "key", [each.key() for each in messages]
    yield "value", [each.value() for each in messages]
    yield "topic", [each.topic() for each in messages]
    yield "partition", [each.partition() for each in messages]
    yield "offset", [each.offset() for each in messages]
    yield "timestamp", [each.timestamp()[1] for each in messages]


def _table(messages: list[Any]) -> int:
    import pyarrow as pa

    rows: int = pa.table(dict(_columns(messages))).num_rows
    return rows


def _frame(messages: list[Any]) -> int:
    import pandas as pd  # type: ignore[import-untyped]

    return len(pd.DataFrame(dict(_columns(messages))))


KINDS: Final[dict[str, Any]] = {
    "sync send": SyncSend,
    "sync send_all": SyncSendAll,
    "aio send": AioSend,
    "aio send_all": AioSendAll,
    "confluent produce": ConfluentProduce,
    "own poll": OwnReader,
    "confluent consume": ConfluentReader,
}
