"""The law of groups of the consumer protocol: which member owns a partition, and which may act."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.sim.laws.generations import Membership
from chaos.sim.laws.member_epochs import MembersReconcile

ONE = Membership("g", 3, "one", None)
OTHER = Membership("g", 3, "other", None)
P, Q = ("t", 0), ("t", 1)


class Bench:
    def __init__(self) -> None:
        self.reported: list[str] = []
        self.law = MembersReconcile.of(cast(Any, SimpleNamespace(report=self.reported.append)))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_partition_is_given_to_one_member_in_an_epoch(bench: Bench) -> None:
    law = bench.law
    law.told(ONE, [P], law.asks())
    law.told(ONE, [P], law.asks())
    law.told(OTHER, [Q], law.asks())
    law.told(OTHER._replace(group_id="h"), [P], law.asks())
    assert not bench.reported
    law.told(OTHER, [P, Q], law.asks())
    assert len(bench.reported) == 1


def test_a_partition_that_was_given_up_may_go_to_another_member(bench: Bench) -> None:
    law = bench.law
    law.told(ONE, [P], law.asks())
    law.gave_up(OTHER, [P])  # it does not have it
    law.gave_up(ONE, [P])
    law.told(OTHER, [P], law.asks())
    assert not bench.reported
    assert not law.is_gone(ONE)
    assert not law.is_gone(OTHER)


def test_whoever_loses_a_partition_without_giving_it_up_is_no_member(bench: Bench) -> None:
    law = bench.law
    law.told(ONE, [P], law.asks())
    assert not law.is_gone(ONE)
    law.accepted(ONE, "a heartbeat", was_over=law.is_gone(ONE))
    law.told(OTHER._replace(generation=4), [P], law.asks())
    assert law.is_gone(ONE)
    assert law.is_over(ONE)
    law.refused(was_over=True)
    assert not bench.reported
    law.accepted(ONE, "a heartbeat", was_over=law.is_gone(ONE))
    assert len(bench.reported) == 1
    law.joins(ONE)
    assert not law.is_gone(ONE)


def test_an_answer_from_before_a_removal_counts_for_nothing(bench: Bench) -> None:
    law = bench.law
    law.told(OTHER._replace(generation=5), [P], law.asks())
    law.told(ONE, [P], law.asks())  # its answer was long under way
    assert law.is_gone(ONE)
    assert not law.is_gone(OTHER)
    law.told(OTHER._replace(generation=6), [P], law.asks())
    assert not bench.reported


def test_the_epoch_of_a_member_never_goes_back(bench: Bench) -> None:
    law = bench.law
    law.told(ONE, [], law.asks())
    law.told(ONE._replace(generation=4), [], law.asks())
    assert law.is_over(ONE)
    assert not law.is_gone(ONE)  # the answer to its heartbeat may have been lost
    assert not bench.reported
    law.told(ONE, [], law.asks())
    assert "was 4 before" in bench.reported[0]


def test_in_earlier_epochs_a_member_commits_what_it_has_had_since(bench: Bench) -> None:
    law, later, last = bench.law, ONE._replace(generation=4), ONE._replace(generation=5)
    law.told(ONE, [P], law.asks())
    assert not law.has_lost(ONE, P)
    assert not law.has_lost(ONE, Q)
    law.told(later, [P, Q], law.asks())
    assert not law.has_lost(ONE, P)
    assert law.has_lost(ONE, Q)
    law.gave_up(later, [P])
    assert not law.has_lost(ONE, P), "the coordinator may not know it yet"
    law.told(last, [P, Q], law.asks())
    assert law.has_lost(ONE, P)
    assert law.has_lost(later, P)
    assert not law.has_lost(later, Q)
    assert not law.has_lost(last, P)
    law.gave_up(last, [Q])
    law.told(OTHER._replace(generation=6), [Q], law.asks())
    assert law.has_lost(later, Q)
    assert not law.has_lost(last, Q), "nobody has told it of a later epoch"
    law.left(last)
    assert law.has_lost(last, P)


def test_members_of_the_classic_protocol_commit_in_their_newest_generation(bench: Bench) -> None:
    law = bench.law
    law.assigned(ONE, [P], law.asks())
    assert not law.has_lost(ONE, P)
    law.assigned(ONE._replace(generation=4), [P], law.asks())
    assert law.has_lost(ONE, P)


def test_a_member_may_begin_again_with_any_epoch(bench: Bench) -> None:
    law = bench.law
    law.told(ONE, [P], law.asks())
    law.joins(ONE)
    law.told(ONE._replace(generation=2), [], law.asks())
    assert not bench.reported


def test_a_new_process_of_a_static_member_takes_its_place(bench: Bench) -> None:
    law = bench.law
    former = ONE._replace(group_instance_id="static")
    law.told(former, [P], law.asks())
    law.told(former._replace(member_id="second"), [P], law.asks())
    assert not bench.reported
    assert law.is_gone(former)
    assert not law.is_gone(former._replace(member_id="second"))


def test_a_member_that_has_left_is_none(bench: Bench) -> None:
    bench.law.told(ONE, [P], bench.law.asks())
    bench.law.left(ONE)
    assert bench.law.is_over(ONE)


def test_in_a_group_that_may_restart_the_later_answer_counts(bench: Bench) -> None:
    """OTHER gets the partition in an earlier epoch, because the group has begun anew."""
    law = bench.law
    law.may_restart("g")
    law.told(ONE, [P], law.asks())
    law.told(OTHER._replace(generation=1), [P], law.asks())
    assert law.is_gone(ONE)
    assert not law.is_gone(OTHER)
    law.told(ONE._replace(member_id="third", generation=1), [P], law.asks())
    assert law.is_gone(OTHER)
    assert not bench.reported


def test_in_a_group_that_may_restart_answers_that_crossed_prove_nothing(bench: Bench) -> None:
    law = bench.law
    law.may_restart("g")
    asked = law.asks()
    law.told(ONE, [P], asked)
    law.told(OTHER, [P], asked)
    assert not law.is_gone(ONE)
    assert not law.is_gone(OTHER)
    law.told(OTHER, [P], law.asks())  # the next heartbeat tells
    assert law.is_gone(ONE)
    assert not bench.reported
