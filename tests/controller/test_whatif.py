"""What would happen: against what does happen when the same brokers are fenced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.whatif import Consequence, WhatIf, what_if
from metadata.partitions import NO_LEADER
from stele.ids import TopicPartition
from tests.support.controller import Machine

VOTERS = {101: True, 102: True, 103: True}


def cluster(assignment: Sequence[int] = (1, 2, 3), **configs: str) -> Machine:
    machine = Machine()
    machine.brokers(1, 2, 3, 4, racks={1: "a", 2: "a", 3: "b", 4: "b"})
    settings: dict[str, Any] = {"min_insync_replicas": "2"} | configs
    machine.create("t", {0: list(assignment)}, **settings)
    return machine


def only(found: WhatIf) -> Consequence:
    (consequence,) = found.consequences
    return consequence


def test_one_dead_broker_of_three_moves_a_leader_and_nothing_else() -> None:
    found = what_if(cluster().image, VOTERS, dead=[1])
    assert found.harmless
    expected = Consequence(
        TopicPartition("t", 0),
        moves_to=2,
        loses_reads=False,
        loses_writes=False,
        loses_records=False,
        copies=2,
    )
    assert only(found) == expected


def test_two_dead_brokers_take_the_writes() -> None:
    found = what_if(cluster().image, VOTERS, dead=[2, 3])
    assert not found.harmless
    each = only(found)
    assert (each.moves_to, each.loses_reads, each.loses_writes, each.copies) == (
        None, False, True, 1,
    )  # fmt: skip


def test_all_dead_brokers_take_everything_but_the_records() -> None:
    each = only(what_if(cluster().image, VOTERS, dead=[1, 2, 3]))
    assert (each.loses_reads, each.loses_writes, each.loses_records, each.copies) == (
        True, True, False, 0,
    )  # fmt: skip


def test_an_unclean_election_loses_records() -> None:
    machine = cluster(min_insync_replicas="1", unclean_leader_election_enable="true")
    machine.alter("t", 1)
    assert only(what_if(machine.image, VOTERS, dead=[1])).loses_records


def test_brokers_without_a_replica_do_not_matter() -> None:
    found = what_if(cluster().image, VOTERS, dead=[4])
    assert found.harmless
    assert found.consequences == ()


def test_a_broker_that_is_down_already_makes_nothing_worse() -> None:
    machine = cluster()
    machine.fence(2)
    machine.fence(3)
    each = only(what_if(machine.image, VOTERS, dead=[3]))
    assert not each.loses_writes, "it takes no writes as it is"


@pytest.mark.parametrize(
    ("voters", "stopped", "left", "survives"),
    [
        (VOTERS, [101], 2, True),
        (VOTERS, [101, 102], 1, False),
        (VOTERS | {102: False}, [101], 1, False),
        ({101: True}, [], 1, True),
        ({101: True}, [101], 0, False),
    ],
)
def test_the_quorum_needs_a_majority(
    voters: dict[int, bool], stopped: list[int], left: int, *, survives: bool
) -> None:
    quorum = what_if(cluster().image, voters, stopped_controllers=stopped).quorum
    assert (quorum.left, quorum.survives) == (left, survives)


def test_nodes_that_nobody_knows_are_named() -> None:
    assert what_if(cluster().image, VOTERS, dead=[1, 9]).unknown == (9,)


@given(
    assignment=st.permutations([1, 2, 3, 4]).flatmap(
        lambda order: st.integers(1, 4).map(lambda size: order[:size])
    ),
    first=st.lists(st.integers(1, 4), unique=True, max_size=3),
    dead=st.lists(st.integers(1, 4), unique=True, max_size=4),
    min_isr=st.integers(1, 3),
    unclean=st.booleans(),
)
@settings(max_examples=100)
def test_what_would_happen_is_what_happens(
    assignment: list[int], first: list[int], dead: list[int], min_isr: int, *, unclean: bool
) -> None:
    machine = cluster(
        assignment,
        min_insync_replicas=str(min_isr),
        unclean_leader_election_enable=str(unclean).lower(),
    )
    for broker_id in first:
        machine.fence(broker_id)
    before = machine.partition("t")
    found = what_if(machine.image, VOTERS, dead=dead)
    for broker_id in sorted(dead):
        machine.fence(broker_id)
    after = machine.partition("t")
    if set(dead).isdisjoint(assignment):
        assert found.consequences == ()
        return
    each = only(found)
    assert each.loses_reads == (before.leader != NO_LEADER and after.leader == NO_LEADER)
    assert each.loses_records == (after.unclean_elections > before.unclean_elections)
    moved = after.leader not in (before.leader, NO_LEADER)
    assert each.moves_to == (after.leader if moved else None)
