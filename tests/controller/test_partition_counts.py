"""CreatePartitions and requested elections, compared with very simple twins."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import elections, partition_counts
from controller.machine import RECORDS_MAX
from metadata.internal_topics import CLEANUP, INTERNAL_TOPICS
from metadata.partitions import NO_LEADER, PartitionState
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from tests.support.controller import Machine

Assignments = Sequence[Sequence[int]] | None


def grow(
    machine: Machine, *wishes: tuple[str, int, Assignments], validate_only: bool = False
) -> list[ErrorCode]:
    request = admin.CreatePartitionsRequest(validate_only=validate_only)
    for name, count, assignments in wishes:
        wish = request.topics.add(name=name, count=count)
        if assignments is not None:
            wish.assignments.SetInParent()
            for replicas in assignments:
                wish.assignments.partitions.add(ids=replicas)
    answer = machine.do(lambda context: partition_counts.create_partitions(context, request))
    for each in answer.topics:
        assert bool(each.error) == bool(each.message), "every refusal says why"
    return [ErrorCode(each.error) for each in answer.topics]


def partitions(machine: Machine, topic: str) -> tuple[PartitionState, ...]:
    found = machine.image.topic(topic)
    return () if found is None else found.partitions


def test_new_partitions_are_placed_like_the_partitions_of_a_new_topic() -> None:
    machine = Machine()
    machine.brokers(1, 2, 3, racks={1: "a", 2: "b", 3: "b"})
    machine.create("t", partitions=1, factor=2)
    before = partitions(machine, "t")
    assert grow(machine, ("t", 5, None)) == [ErrorCode.NONE]
    after = partitions(machine, "t")
    assert after[:1] == before
    for state in after[1:]:
        assert state.isr == tuple(sorted(state.replicas))
        assert state.leader == state.replicas[0]
        assert 1 in state.replicas, "one replica on each rack"
    machine.fence(3)
    machine.fence(2)
    machine.create("u", {0: [1]})
    assert grow(machine, ("t", 6, None), ("u", 2, [[3]])) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ]
    assert partitions(machine, "t")[5].isr == (1,), "a fenced broker is not in sync"


def test_a_topic_that_is_being_moved_gets_partitions_of_its_former_size() -> None:
    machine = Machine()
    machine.brokers(1, 2, 3)
    machine.create("t", {0: [1, 2]})
    assert machine.reassign("t", 3) is ErrorCode.NONE
    assert grow(machine, ("t", 2, None)) == [ErrorCode.NONE]
    assert len(partitions(machine, "t")[1].replicas) == 2


def test_too_many_for_one_request() -> None:
    machine = Machine()
    machine.brokers(1)
    machine.create("t", {0: [1]})
    machine.create("u", {0: [1]})
    assert grow(machine, ("t", RECORDS_MAX + 2, None)) == [ErrorCode.POLICY_VIOLATION]
    assert grow(machine, ("t", RECORDS_MAX, None), ("u", 3, None), ("u", 2, None)) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert len(machine.last_records) == RECORDS_MAX - 1


TOPICS = ("a", "b", "missing")
WISHES = st.lists(
    st.tuples(
        st.sampled_from(TOPICS),
        st.integers(-1, 6),
        st.none() | st.lists(st.lists(st.integers(1, 4), max_size=3), max_size=3),
    ),
    max_size=4,
)


class CountsTwin:
    """Topics as lists of replica lists; brokers 1 to 3, all alive."""

    def __init__(self, topics: Mapping[str, Sequence[Sequence[int]]]) -> None:
        self.topics = {name: [list(each) for each in lists] for name, lists in topics.items()}

    def judge(self, wishes: Sequence[tuple[str, int, Assignments]], number: int) -> ErrorCode:
        name, count, given_ = wishes[number]
        if [each for each, _, _ in wishes].count(name) > 1:
            return ErrorCode.INVALID_REQUEST
        if name not in self.topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if count <= len(self.topics[name]):
            return ErrorCode.INVALID_PARTITIONS
        if given_ is None:
            return ErrorCode.NONE
        factor = len(self.topics[name][0])
        fits = len(given_) == count - len(self.topics[name])
        known = all(len(each) == factor == len({*each}) and {*each} <= {1, 2, 3} for each in given_)
        return ErrorCode.NONE if fits and known else ErrorCode.INVALID_REPLICA_ASSIGNMENT


@settings(max_examples=200)
@given(requests=st.lists(st.tuples(WISHES, st.booleans()), max_size=6))
def test_counts_agree_with_the_twin(
    requests: list[tuple[list[tuple[str, int, Assignments]], bool]],
) -> None:
    machine = Machine()
    machine.brokers(1, 2, 3)
    machine.create("a", {0: [1, 2]})
    machine.create("b", {0: [3], 1: [2]})
    twin = CountsTwin({"a": [[1, 2]], "b": [[3], [2]]})
    for wishes, validate_only in requests:
        expected = [twin.judge(wishes, number) for number in range(len(wishes))]
        assert grow(machine, *wishes, validate_only=validate_only) == expected
        for (name, count, given_), code in zip(wishes, expected, strict=True):
            if code is ErrorCode.NONE and not validate_only:
                lists, present = twin.topics[name], partitions(machine, name)
                placed = [list(each.replicas) for each in present[len(lists) : count]]
                assert given_ is None or placed == [list(each) for each in given_]
                assert all(len({*each}) == len(each) == len(lists[0]) for each in placed)
                lists.extend(placed)
        for name, lists in twin.topics.items():
            assert [list(each.replicas) for each in partitions(machine, name)] == lists


# ---------------------------------------------------------------------------------- elections


def elect(machine: Machine, *named: tuple[str, int], unclean: bool) -> dict[tuple[str, int], int]:
    request = admin.ElectLeadersRequest(
        unclean=unclean,
        partitions=[admin.TopicPartitionName(topic=t, partition=p) for t, p in named],
    )
    answer = machine.do(lambda context: elections.elect_leaders(context, request))
    for each in answer.partitions:
        assert bool(each.error) == bool(each.message), "every refusal says why"
    return {(each.topic, each.partition): each.error for each in answer.partitions}


def judge(state: PartitionState, active: set[int], *, unclean: bool) -> tuple[ErrorCode, int]:
    """The answer of an election, and the leader after it."""
    if unclean:
        if state.leader != NO_LEADER:
            return ErrorCode.ELECTION_NOT_NEEDED, state.leader
        known = [each for each in (*state.last_known_elr, *state.replicas) if each in active]
        return (
            (ErrorCode.NONE, known[0])
            if known
            else (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, NO_LEADER)
        )
    if state.leader == state.replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED, state.leader
    if state.replicas[0] in state.isr and state.replicas[0] in active:
        return ErrorCode.NONE, state.replicas[0]
    return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, state.leader


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_elections_agree_with_the_twin(seed: int) -> None:
    lots = random.Random(seed)
    machine = Machine(seed=seed)
    machine.brokers(1, 2, 3)
    for name in ("a", "b"):
        machine.create(
            name,
            {number: lots.sample((1, 2, 3), 2) for number in range(3)},
            min_insync_replicas=str(lots.randrange(1, 3)),
        )
    for _ in range(12):
        broker = lots.randrange(1, 4)
        lots.choice((machine.fence, machine.heartbeat))(broker)
        for name in ("a", "b"):  # a replica that has caught up joins
            number = lots.randrange(3)
            state = machine.partition(name, number)
            joining = [each for each in state.replicas if machine.image.is_active(each)]
            if state.leader != NO_LEADER and lots.random() < 0.5:
                machine.alter(name, *{*state.isr, *joining}, number=number)
        active = {each for each in (1, 2, 3) if machine.image.is_active(each)}
        unclean = lots.random() < 0.3
        all_of_them = [(name, number) for name in ("a", "b") for number in range(3)]
        asked = lots.sample(all_of_them, lots.randrange(7))
        expected = {
            place: judge(machine.partition(*place), active, unclean=unclean)
            for place in asked or all_of_them
        }
        answered = elect(machine, *asked, unclean=unclean)
        assert answered == {
            place: code
            for place, (code, _) in expected.items()
            if asked or code is not ErrorCode.ELECTION_NOT_NEEDED
        }
        for place, (_, leader) in expected.items():
            assert machine.partition(*place).leader == leader


def test_a_partition_named_twice_is_elected_once() -> None:
    machine = Machine()
    machine.brokers(1, 2)
    machine.create("t", {0: [1, 2]})
    machine.fence(1)
    machine.heartbeat(1)
    machine.alter("t", 1, 2)
    request = admin.ElectLeadersRequest(
        partitions=[admin.TopicPartitionName(topic="t", partition=0)] * 2
    )
    answer = machine.do(lambda context: elections.elect_leaders(context, request))
    assert [each.error for each in answer.partitions] == [
        ErrorCode.NONE,
        ErrorCode.ELECTION_NOT_NEEDED,
    ]
    assert len(machine.last_records) == 1


@pytest.mark.parametrize("place", [("t", 1), ("t", -1), ("x", 0)])
def test_what_is_not_there_is_not_elected(place: tuple[str, int]) -> None:
    machine = Machine()
    machine.brokers(1)
    machine.create("t", {0: [1]})
    assert elect(machine, place, unclean=False) == {place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_an_internal_topic_gets_no_more_partitions() -> None:
    machine = Machine()
    machine.brokers(1)
    for name in sorted(INTERNAL_TOPICS):
        configs: dict[str, Any] = {
            key.replace(".", "_"): value for key, value in CLEANUP[name].items()
        }
        machine.create(name, {0: [1]}, **configs)
        for how in (None, [[1]]):
            assert grow(machine, (name, 2, how)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert len(partitions(machine, name)) == 1
