"""Records of a topic for a page: bounded by their number, their bytes and by time."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from console.measures import END, START, offsets_at
from stele.aio import Admin, Consumer
from stele.ids import TopicPartition
from stele.records import ConsumerRecord
from stele.world import Clock

MOST_RECORDS: Final = 500
MOST_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of keys and values on a page. The record that exceeds them is still shown."""

_POLL_RECORDS: Final = 25
"""A poll returns so many records at most, so that few are beyond the bound."""

_POLL_MS: Final = 250


class Place(enum.StrEnum):
    """Where reading begins."""

    LAST = "last"
    OFFSET = "offset"
    TIME = "time"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of a partition: from the first one to the one before ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Found:
    """``unread``: the partitions that did not come to their end in time, and why."""

    records: tuple[ConsumerRecord, ...]
    unread: Mapping[TopicPartition, str]


async def spans(
    admin: Admin, partitions: Sequence[TopicPartition], place: Place, number: int, limit: int
) -> dict[TopicPartition, Span]:
    """What is to be read of each partition. ``number``: the offset or the time in milliseconds.

    LAST shares the limit between the partitions, since a topic has no order of its own. Raises
    SteleError.
    """
    starts = await offsets_at(admin, partitions, START)
    ends = await offsets_at(admin, partitions, END)
    times: dict[TopicPartition, int] = {}
    if place is Place.TIME:
        found = await admin.list_offsets(dict.fromkeys(partitions, max(0, number)))
        times = {name: each.offset for name, each in found.items()}
    share = max(1, limit // max(1, len(partitions)))
    begins: dict[TopicPartition, int] = {}
    for name, end in ends.items():
        match place:
            case Place.LAST:
                begin = end - share
            case Place.OFFSET:
                begin = number
            case Place.TIME:
                begin = times[name] if times[name] >= 0 else end
            case Place.FIRST:
                begin = 0
        begins[name] = max(begin, starts[name])
    return {name: Span(begins[name], end) for name, end in ends.items() if begins[name] < end}


def within(
    found: Mapping[TopicPartition, Span], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Span]:
    """The spans up to where a consumer can come: an open transaction holds it back."""
    return {
        name: Span(span.start, min(span.end, ends[name]))
        for name, span in found.items()
        if span.start < ends[name]
    }


async def read(
    consumer: Consumer,
    wanted: Mapping[TopicPartition, Span],
    limit: int,
    clock: Clock,
    timeout_s: float,
) -> Found:
    """At most ``limit`` records and about MOST_BYTES of all partitions together, from the beginning
    of each span."""
    deadline = clock.monotonic() + timeout_s
    consumer.assign(wanted)
    for name, span in wanted.items():
        consumer.seek(name.topic, name.partition, span.start)
    unread = dict(wanted)
    records: list[ConsumerRecord] = []
    size = 0
    while unread and len(records) < limit and size < MOST_BYTES and clock.monotonic() < deadline:
        most = min(limit - len(records), _POLL_RECORDS)
        for each in await consumer.poll(timeout_ms=_POLL_MS, max_records=most):
            name = TopicPartition(each.topic, each.partition)
            if each.offset < wanted[name].end:
                records.append(each)
                size += len(each.key or b"") + len(each.value or b"")
        # A position passes offsets without records: markers of transactions, compacted records.
        for name in list(unread):
            if (consumer.known_position(*name) or 0) >= wanted[name].end:
                del unread[name]
                consumer.pause(name)
    if len(records) >= limit:
        unread = {}
    if size >= MOST_BYTES:
        full = f"a page has {MOST_BYTES >> 20} MiB of records at most: show fewer"
        return Found(tuple(records), dict.fromkeys(unread, full))
    reasons = consumer.why(*unread) if unread else {}
    return Found(tuple(records), reasons)
