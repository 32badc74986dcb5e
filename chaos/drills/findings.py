"""The findings about the records of a history: lost, duplicated, reordered, and more. Pure.

The final reader has read the log as it is at the end. Every law compares it with the earlier
answers to producers and other readers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from chaos.drills.history import FINAL, Acked, Failed, History, Read, Sent


class Named(NamedTuple):
    """A record's name: whatever happens to it, nothing else has this name."""

    partition: int
    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer} {self.number} of partition {self.partition}"


@dataclass(frozen=True, slots=True)
class Findings:
    """Each field but ``acknowledged`` is ordered by the records' names."""

    acknowledged: int
    lost: tuple[Named, ...]
    """Acknowledged, and not in the log."""
    duplicated: tuple[Named, ...]
    """In the log more than once."""
    reordered: tuple[Named, ...]
    """In the log behind a later record of the same producer and partition."""
    moved: tuple[Named, ...]
    """In the log, but not at the offset that the acknowledgement named."""
    unknown: tuple[Named, ...]
    """In the log, though nobody sent it."""
    vanished: tuple[Named, ...]
    """A consumer read it at an offset where the log has something else, or nothing."""
    denied: tuple[Named, ...]
    """In the log, though the producer was told that it cannot have been written."""


def find(history: History) -> Findings:
    """Check every record of a history."""
    log: dict[Named, list[int]] = defaultdict(list)
    at_offset: dict[tuple[int, int], Named] = {}
    for read in history.of(Read):
        if read.reader == FINAL:
            name = Named(read.partition, read.producer, read.number)
            log[name].append(read.offset)
            at_offset[read.partition, read.offset] = name
    acked = {_name(each): each.offset for each in history.of(Acked)}
    sent = {_name(each) for each in history.of(Sent)}
    denied = {_name(each) for each in history.of(Failed) if not each.maybe_written}
    seen = {
        (read.partition, read.offset, Named(read.partition, read.producer, read.number))
        for read in history.of(Read)
        if read.reader != FINAL
    }
    return Findings(
        acknowledged=len(acked),
        lost=_ordered(name for name in acked if name not in log),
        duplicated=_ordered(name for name, offsets in log.items() if len(offsets) > 1),
        reordered=_reordered(log),
        moved=_ordered(
            name
            for name, offset in acked.items()
            if offset >= 0 and name in log and offset not in log[name]
        ),
        unknown=_ordered(name for name in log if name not in sent),
        vanished=_ordered(
            name for partition, offset, name in seen if at_offset.get((partition, offset)) != name
        ),
        denied=_ordered(name for name in denied if name in log),
    )


def _name(event: Sent | Acked | Failed) -> Named:
    return Named(event.partition, event.producer, event.number)


def _ordered(names: Iterable[Named]) -> tuple[Named, ...]:
    return tuple(sorted(set(names)))


def _reordered(log: dict[Named, list[int]]) -> tuple[Named, ...]:
    """By the first place of each record: a duplicate behind it is not out of order as well."""
    lanes: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for name, offsets in log.items():
        lanes[name.partition, name.producer].append((min(offsets), name.number))
    found = []
    for (partition, producer), lane in lanes.items():
        greatest = -1
        for _, number in sorted(lane):
            if number < greatest:
                found.append(Named(partition, producer, number))
            greatest = max(greatest, number)
    return _ordered(found)
