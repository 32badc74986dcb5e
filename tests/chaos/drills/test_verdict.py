"""Verdicts: a green history, everything that can be planted in it, every expectation broken."""

from __future__ import annotations

import dataclasses

import pytest

from chaos.drills.history import Expectations, Failed, History, Step, Zombie
from chaos.drills.planted import PLANTS, Plant, plant_all
from chaos.drills.verdict import judge
from tests.support.histories import green

MET = Expectations(
    write_outage_ms=320,
    read_outage_ms=5,
    recovery_ms=200,
    refusal="NOT_ENOUGH_REPLICAS",
    elections=1,
    quorum_elections=1,
    isr_least=2,
)


def with_zombie(history: History) -> History:
    expectations = dataclasses.replace(history.header.expectations, zombie=True)
    zombie = Zombie(620, 101, 0, "NOT_LEADER_OR_FOLLOWER")
    return History(
        dataclasses.replace(history.header, expectations=expectations), (*history.events, zombie)
    )


def test_a_history_that_meets_everything_is_green() -> None:
    verdict = judge(with_zombie(green(MET)))
    assert [check for check in verdict.checks if not check.holds] == []


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_whatever_is_planted_turns_it_red(plant: Plant) -> None:
    planted = plant(with_zombie(green(MET)))
    assert planted is not None
    assert not judge(planted).green


def test_everything_planted_is_caught() -> None:
    caught, missed = plant_all(with_zombie(green(MET)))
    assert len(caught) == len(PLANTS)
    assert missed == []


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"write_outage_ms": 300}, "outage of writes at most 0.3 s"),
        ({"read_outage_ms": 2}, "outage of reads at most 0.002 s"),
        ({"group_outage_ms": 1000}, "outage of the group's work at most 1 s"),
        ({"recovery_ms": 100}, "recovery within 0.1 s"),
        ({"refusal": "NOT_LEADER_OR_FOLLOWER"}, "writes are refused with NOT_LEADER_OR_FOLLOWER"),
        ({"elections": 2}, "partitions elected leaders"),
        ({"quorum_elections": 2}, "the controllers elected a leader"),
        ({"isr_least": 1}, "an ISR shrank to 1 or less"),
        ({"unclean_elections": 1}, "unclean elections were counted"),
        ({"loses": True}, "acknowledged records are lost, as they must be"),
        ({"zombie": True}, "the paused leader acknowledged nothing"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_expectation_that_is_not_met_is_named(change: dict[str, object], broken: str) -> None:
    verdict = judge(green(dataclasses.replace(MET, **change)))  # type: ignore[arg-type]
    assert [check.name for check in verdict.broken] == [broken]


def test_a_drill_that_did_not_come_to_its_end_is_red() -> None:
    history = green(MET)
    failed = Step(990.0, "failed", "not within 60 s: the cluster is whole again")
    verdict = judge(History(history.header, (*history.events, failed)))
    assert [check.told for check in verdict.broken] == [failed.text]


def test_a_refusal_of_another_kind_does_not_count() -> None:
    history = green(MET)
    events = tuple(
        dataclasses.replace(each, error="UnreachableError") if isinstance(each, Failed) else each
        for each in history.events
    )
    assert not judge(History(history.header, events)).green
