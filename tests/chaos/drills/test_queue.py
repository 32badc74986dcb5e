"""The verdict on a queue: what its workers got and said, and each thing that must not be."""

from __future__ import annotations

import dataclasses

import pytest

from chaos.drills.history import Acked, Delivered, Event, Expectations, History, Read, Sent, Settled
from chaos.drills.queue.poison import is_poison
from chaos.drills.verdict import judge
from tests.support.histories import PARTITIONS, green

LIMIT = 3
MET = Expectations(recovery_ms=200, elections=1, delivery_limit=LIMIT)
POISON = 50


def got(at_ms: float, offset: int, number: int, count: int, asked_ms: float) -> Delivered:
    return Delivered(at_ms, "worker-1", 0, offset, "writer1", number, count, asked_ms)


def with_queue(*more: Event) -> History:
    """Each record of a green history is delivered and accepted. One more record is poison, which is
    delivered three times."""
    events: list[Event] = [*green(MET).events]
    for partition in range(PARTITIONS):
        for number in range(10):
            events += [
                Delivered(900, "worker-1", partition, number, "writer1", number, 1, 890),
                Settled(905, "worker-1", partition, number, "ACCEPT"),
            ]
    for count in range(1, LIMIT + 1):
        events += [got(910 + count, 10, POISON, count, 905), Settled(915, "w", 0, 10, "RELEASE")]
    names: list[Event] = [
        Acked(900, "writer1", 0, POISON, 10),
        Read(1100, "final", 0, 10, "writer1", POISON),
    ]
    sent = dataclasses.replace(next(green(MET).of(Sent)), number=POISON)
    return dataclasses.replace(green(MET), events=(*events, sent, *names, *more))


def without(history: History, *gone: Event) -> History:
    events = tuple(each for each in history.events if each not in gone)
    return dataclasses.replace(history, events=events)


def test_one_of_a_hundred_records_is_poison() -> None:
    assert sum(map(is_poison, range(1_000))) == 10
    assert is_poison(POISON)


def test_a_queue_that_keeps_its_promises_is_green() -> None:
    again = got(1000, 3, 3, 2, 904)  # its worker began to wait before the acceptance was answered
    verdict = judge(with_queue(again))
    assert [each for each in verdict.checks if not each.holds] == []
    assert verdict.queue is not None
    assert (verdict.queue.poison, verdict.queue.again) == (1, LIMIT)


@pytest.mark.parametrize(
    ("more", "broken"),
    [
        (got(1000, 3, 3, 2, 906), "no record was delivered after its acceptance was answered"),
        (got(1000, 10, POISON, 4, 950), "no record was delivered more than 3 times"),
        (Acked(900, "writer1", 1, 11, -1), "every acknowledged record was processed"),
    ],
)
def test_what_must_not_be_is_found(more: Event, broken: str) -> None:
    assert broken in {each.name for each in judge(with_queue(more)).broken}


def test_poison_that_is_given_up_early_is_found() -> None:
    history = with_queue()
    verdict = judge(without(history, got(910 + LIMIT, 10, POISON, LIMIT, 905)))
    assert {each.name for each in verdict.broken} == {"no poison was given up before delivery 3"}


def test_a_queue_without_deliveries_proves_nothing() -> None:
    history = with_queue()
    verdict = judge(without(history, *history.of(Delivered)))
    assert {each.name for each in verdict.broken} == {"workers processed records"}
