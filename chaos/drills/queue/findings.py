"""What became of the records of a queue. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from chaos.drills.findings import Named
from chaos.drills.history import FINAL, Acked, Delivered, History, Read, Settled
from chaos.drills.queue.poison import is_poison

ACCEPTED = "ACCEPT"
_Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class QueueFindings:
    """The lists are ordered by the records' names."""

    records: int
    """Acknowledged to their producer."""
    poison: int
    deliveries: int
    again: int
    """Deliveries of a record that had been delivered before."""
    lost: tuple[Named, ...]
    """Acknowledged to their producer, and no worker has got them."""
    undone: tuple[Named, ...]
    """Delivered again after their acceptance was answered."""
    untried: tuple[Named, ...]
    """Poison that was given up before its last delivery."""
    excessive: tuple[Named, ...]
    """Delivered with a count above the limit."""


def find_queue(history: History) -> QueueFindings | None:
    """None: the history has no deliveries."""
    delivered: dict[_Place, list[Delivered]] = defaultdict(list)
    for each in history.of(Delivered):
        delivered[each.partition, each.offset].append(each)
    if not delivered:
        return None
    limit = history.header.expectations.delivery_limit
    names = {
        (each.partition, each.offset): Named(each.partition, each.producer, each.number)
        for each in history.of(Read)
        if each.reader == FINAL
    }
    got = {_name(each) for found in delivered.values() for each in found}
    acked = {Named(each.partition, each.producer, each.number) for each in history.of(Acked)}
    counts = {place: max(each.count for each in found) for place, found in delivered.items()}
    poison = {place for place, name in names.items() if is_poison(name.number)}
    return QueueFindings(
        records=len(acked),
        poison=len(poison),
        deliveries=sum(map(len, delivered.values())),
        again=sum(len(found) - 1 for found in delivered.values()),
        lost=_ordered(acked - got),
        undone=_ordered(_undone(history, delivered)),
        untried=_ordered(names[each] for each in poison if counts.get(each, 0) < limit),
        excessive=_ordered(
            _name(delivered[place][0]) for place, count in counts.items() if count > limit
        ),
    )


def _undone(history: History, delivered: dict[_Place, list[Delivered]]) -> Iterable[Named]:
    """A worker that asked before the answer may have got the record before it."""
    accepted: dict[_Place, float] = {}
    for answer in history.of(Settled):
        if answer.outcome == ACCEPTED:
            accepted.setdefault((answer.partition, answer.offset), answer.at_ms)
    for place, at_ms in accepted.items():
        for each in delivered.get(place, ()):
            if each.asked_ms > at_ms:
                yield _name(each)


def _name(each: Delivered) -> Named:
    return Named(each.partition, each.producer, each.number)


def _ordered(names: Iterable[Named]) -> tuple[Named, ...]:
    return tuple(sorted(set(names)))
