"""Where a subscription begins to read each of its partitions."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from stele.aio import Consumer
from stele.ids import TopicPartition


class Edge(enum.Enum):
    """A place without a fixed offset."""

    EARLIEST = enum.auto()
    LATEST = enum.auto()


async def start_offsets(
    consumer: Consumer,
    places: Mapping[TopicPartition, int | Edge],
    times_ms: Mapping[tuple[str, int], int],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The offset of each partition's first record to read, and its high watermark.

    ``times_ms``: for partitions that begin at a time; without a record so late, at their end.
    Raises SteleError.
    """
    ends = await consumer.end_offsets(places)
    wanted = [name for name, place in places.items() if place is Edge.EARLIEST]
    earliest = await consumer.beginning_offsets(wanted) if wanted else {}
    at_times = await consumer.offsets_for_times(times_ms) if times_ms else {}
    begin: dict[TopicPartition, int] = {}
    for name, place in places.items():
        if name in times_ms:
            found = at_times.get(name)
            begin[name] = ends[name] if found is None else found.offset
        elif isinstance(place, int):
            begin[name] = place
        else:
            begin[name] = earliest.get(name, ends[name])
    return begin, ends
