"""Records of assigned partitions up to given offsets, forwards, or the last ones of all."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from cli.output import CommandError

if TYPE_CHECKING:
    from cli.records.filters import Accepts
    from stele.ids import TopicPartition
    from stele.records import ConsumerRecord

_POLL_RECORDS: Final = 1000
_POLL_MS: Final = 500
_GROWTH: Final = 4
"""How much further back each step of the search for the last records goes."""


class Reader(Protocol):
    """A consumer, as far as reading needs it."""

    def assign(self, partitions: list[TopicPartition]) -> None: ...
    def seek(self, topic: str, partition: int, offset: int) -> None: ...
    def position(self, topic: str, partition: int) -> int: ...
    def pause(self, *partitions: TopicPartition) -> None: ...
    def resume(self, *partitions: TopicPartition) -> None: ...
    def poll(
        self, max_records: int | None = None, timeout_ms: float = 1000
    ) -> Sequence[ConsumerRecord]: ...
    def beginning_offsets(
        self, partitions: list[TopicPartition]
    ) -> Mapping[TopicPartition, int]: ...


def records_until(
    consumer: Reader, ends: Mapping[TopicPartition, int], timeout_s: float
) -> Iterator[list[ConsumerRecord]]:
    """The records before ``ends`` from the positions on. Partitions that have reached their end
    are paused. Raises CommandError after ``timeout_s`` without a record that is known to be there.
    """
    silent_since = time.monotonic()
    unread = {name for name, end in ends.items() if consumer.position(*name) < end}
    if done := [name for name in ends if name not in unread]:
        consumer.pause(*done)  # without arguments it would pause all
    while unread:
        records = consumer.poll(_POLL_RECORDS, timeout_ms=_POLL_MS)
        if records:
            silent_since = time.monotonic()
        elif time.monotonic() - silent_since > timeout_s:
            name = min(unread)
            raise CommandError(
                f"{name}: no record came for {timeout_s:g} s at offset {consumer.position(*name)}, "
                f"{ends[name]} not reached"
            )
        yield [
            record
            for record in records
            if record.offset < ends[(record.topic, record.partition)]  # type: ignore[index]
        ]
        for name in list(unread):
            if consumer.position(*name) >= ends[name]:
                unread.discard(name)
                consumer.pause(name)


def records_from(consumer: Reader) -> Iterator[Sequence[ConsumerRecord]]:
    """The records from the positions on, without an end."""
    while True:
        yield consumer.poll(_POLL_RECORDS, timeout_ms=_POLL_MS)


def last_records(
    consumer: Reader,
    ends: Mapping[TopicPartition, int],
    count: int,
    accepts: Accepts | None,
    timeout_s: float,
) -> list[ConsumerRecord]:
    """The ``count`` last records before ``ends`` in the order of their times; in a partition in the
    order of their offsets.

    Offsets have gaps (compaction, markers of transactions), and a filter leaves records out. So
    each partition is read backwards, in steps that grow, until it has given enough.
    """
    begins = consumer.beginning_offsets(list(ends))
    found: dict[TopicPartition, list[ConsumerRecord]] = {name: [] for name in ends}
    upper = {name: end for name, end in ends.items() if begins[name] < end}
    span = count
    while upper:
        lower = {name: max(begins[name], end - span) for name, end in upper.items()}
        earlier: dict[TopicPartition, deque[ConsumerRecord]] = {
            name: deque(maxlen=count - len(found[name])) for name in upper
        }
        consumer.assign(list(upper))
        consumer.resume()
        for name, offset in lower.items():
            consumer.seek(*name, offset)
        for records in records_until(consumer, upper, timeout_s):
            for record in records:
                if accepts is None or accepts(record):
                    earlier[(record.topic, record.partition)].append(record)  # type: ignore[index]
        for name, some in earlier.items():
            found[name] = [*some, *found[name]]
        upper = {
            name: offset
            for name, offset in lower.items()
            if len(found[name]) < count and offset > begins[name]
        }
        span *= _GROWTH
    backwards = heapq.merge(
        *(reversed(each) for each in found.values()),
        key=lambda record: record.timestamp_ms,
        reverse=True,
    )
    return list(islice(backwards, count))[::-1]
