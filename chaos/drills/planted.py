"""Faults planted in a history: each must turn its verdict red. Pure.

They prove the checkers without a cluster: each planted loss must be found.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Final

from chaos.drills.history import FINAL, Acked, Event, Failed, History, Read, Zombie
from chaos.drills.outages import measure
from chaos.drills.verdict import judge

Plant = Callable[[History], History | None]
"""None: there is nothing in this history to plant it in."""


def lose_one(history: History) -> History | None:
    """An acknowledged record of the middle is not in the log at the end."""
    acked = list(history.of(Acked))
    if not acked:
        return None
    victim = acked[len(acked) // 2]
    return _keep(history, lambda event: not _is_final_of(event, victim))


def lose_the_end(history: History) -> History | None:
    """The last acknowledged record of a partition is not in the log at the end."""
    acked = list(history.of(Acked))
    if not acked:
        return None
    return _keep(history, lambda event: not _is_final_of(event, acked[-1]))


def write_twice(history: History) -> History | None:
    """A record is in the log a second time, at its end."""
    final = _final(history)
    if not final:
        return None
    twice = dataclasses.replace(final[0], offset=1 + max(each.offset for each in final))
    return dataclasses.replace(history, events=(*history.events, twice))


def swap_two(history: History) -> History | None:
    """Two neighbours of one producer are in the log in the wrong order."""
    final = _final(history)
    for first, second in itertools.pairwise(final):
        same = (first.partition, first.producer) == (second.partition, second.producer)
        if same and second.number == first.number + 1:
            swapped = {
                id(first): dataclasses.replace(first, offset=second.offset),
                id(second): dataclasses.replace(second, offset=first.offset),
            }
            events = tuple(swapped.get(id(event), event) for event in history.events)
            return dataclasses.replace(history, events=events)
    return None


def read_what_vanishes(history: History) -> History | None:
    """A consumer has read a record where the log has another one at the end."""
    for index, event in enumerate(history.events):
        if isinstance(event, Read) and event.reader != FINAL:
            other = dataclasses.replace(event, number=event.number + 1_000_000)
            events = (*history.events[:index], other, *history.events[index + 1 :])
            return dataclasses.replace(history, events=events)
    return None


def deny_what_is_there(history: History) -> History | None:
    """A producer was told that a record cannot have been written, and it was."""
    acked = next(history.of(Acked), None)
    if acked is None:
        return None
    denied = Failed(
        acked.at_ms, acked.producer, acked.partition, acked.number, "NOT_ENOUGH_REPLICAS", False
    )
    events = tuple(denied if event is acked else event for event in history.events)
    return dataclasses.replace(history, events=events)


def never_recover(history: History) -> History | None:
    """The cluster did not become whole again."""
    recovered = history.steps("recovered")
    return _keep(history, lambda event: event not in recovered) if recovered else None


def exceed_the_budget(history: History) -> History | None:
    """An outage was longer than its budget allows, by a hair."""
    expected = history.header.expectations
    times = measure(history)
    longest = max((each.duration_ms for each in times.writes), default=0.0)
    if expected.write_outage_ms is None or longest <= 0:
        return None
    tighter = dataclasses.replace(expected, write_outage_ms=longest - 0.001)
    header = dataclasses.replace(history.header, expectations=tighter)
    return dataclasses.replace(history, header=header)


def let_the_zombie_acknowledge(history: History) -> History | None:
    """A paused leader acknowledged one of the requests that waited for it."""
    zombie = next(history.of(Zombie), None)
    if zombie is None:
        return None
    acknowledged = dataclasses.replace(zombie, outcome="NONE")
    events = tuple(acknowledged if event is zombie else event for event in history.events)
    return dataclasses.replace(history, events=events)


PLANTS: Final[tuple[Plant, ...]] = (
    lose_one,
    lose_the_end,
    write_twice,
    swap_two,
    read_what_vanishes,
    deny_what_is_there,
    never_recover,
    exceed_the_budget,
    let_the_zombie_acknowledge,
)
_NEED_NO_LOSS: Final = (lose_one, lose_the_end, read_what_vanishes)
_NEED_ORDER: Final = (write_twice, swap_two)


def plant_all(history: History) -> tuple[list[str], list[str]]:
    """Plant every fault in a green history. Returns the found and the missed ones."""
    expected = history.header.expectations
    caught: list[str] = []
    not_caught: list[str] = []
    for plant in PLANTS:
        if (expected.loses and plant in _NEED_NO_LOSS) or (
            expected.duplicates and plant in _NEED_ORDER
        ):
            continue
        planted = plant(history)
        if planted is not None:
            (not_caught if judge(planted).green else caught).append(plant.__name__)
    return caught, not_caught


def _keep(history: History, keeps: Callable[[Event], bool]) -> History:
    return dataclasses.replace(history, events=tuple(filter(keeps, history.events)))


def _is_final_of(event: Event, acked: Acked) -> bool:
    return (
        isinstance(event, Read)
        and event.reader == FINAL
        and (event.partition, event.producer, event.number)
        == (acked.partition, acked.producer, acked.number)
    )


def _final(history: History) -> list[Read]:
    return [read for read in history.of(Read) if read.reader == FINAL]
