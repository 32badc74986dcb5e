"""AlterPartitionReassignments: start, redirect, cancel, complete (KIP-455)."""

from __future__ import annotations

import pytest

from controller import reassignment, topics
from controller.assignment import Assignment
from metadata.partitions import NO_LEADER, RECOVERED, PartitionState
from metadata.snapshot import image_of, records_of
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from tests.support.controller import Machine, refusal

T = "t"


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.brokers(1, 2, 3, 4, 5)
    machine.create(T, {0: [1, 2, 3]}, min_insync_replicas="2")
    return machine


def listed(machine: Machine, *named: tuple[str, int]) -> list[tuple[str, int]]:
    request = admin.ListPartitionReassignmentsRequest(
        partitions=[admin.TopicPartitionName(topic=t, partition=p) for t, p in named]
    )
    response = machine.do(lambda ctx: reassignment.list_partition_reassignments(ctx, request))
    return [(each.topic, each.partition) for each in response.partitions]


@pytest.mark.parametrize(
    ("target", "replicas", "adding", "removing"),
    [
        ((3, 4, 5), (3, 4, 5, 1, 2), (4, 5), (1, 2)),
        ((5, 3, 2), (5, 3, 2, 1), (5,), (1,)),
        ((1, 2, 3, 4), (1, 2, 3, 4), (4,), ()),
        ((4,), (4, 1, 2, 3), (4,), (1, 2, 3)),
    ],
)
def test_start(
    machine: Machine,
    target: tuple[int, ...],
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> None:
    before = machine.partition(T)
    assert machine.reassign(T, *target) is ErrorCode.NONE
    state = machine.partition(T)
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == (
        replicas,
        adding,
        removing,
    )
    assert (state.target_replicas, state.original_replicas) == (target, (1, 2, 3))
    assert (state.isr, state.leader) == (before.isr, before.leader)
    assert state.leader_epoch == before.leader_epoch, "everybody who was a replica still is one"
    assert state.partition_epoch == before.partition_epoch + 1
    assert listed(machine) == listed(machine, (T, 0)) == [(T, 0)]
    assert listed(machine, (T, 1), ("other", 0)) == []


def test_the_same_target_again_changes_nothing(machine: Machine) -> None:
    machine.reassign(T, 3, 4, 5)
    before = machine.image
    assert machine.reassign(T, 3, 4, 5) is ErrorCode.NONE
    assert machine.image is before


def test_completion_is_one_decision_with_the_election(machine: Machine) -> None:
    machine.reassign(T, 3, 4, 5)
    machine.alter(T, 1, 2, 3, 4)
    before = machine.partition(T)
    assert before.is_reassigning
    answer = machine.alter(T, 1, 2, 3, 4, 5)
    assert len(machine.last_records) == 1
    assert machine.partition(T) == PartitionState(
        replicas=(3, 4, 5),
        isr=(3, 4, 5),
        leader=3,
        leader_epoch=before.leader_epoch + 1,
        partition_epoch=before.partition_epoch + 1,
    )
    # The old leader hears of an epoch that is not its own, and waits for the metadata.
    assert (answer.error, answer.leader, answer.leader_epoch) == (
        ErrorCode.NONE,
        3,
        before.leader_epoch + 1,
    )
    assert listed(machine) == []


def test_a_leader_that_stays_gets_a_new_epoch(machine: Machine) -> None:
    machine.reassign(T, 1, 4, 5)
    epoch = machine.partition(T).leader_epoch
    machine.alter(T, 1, 4, 5)
    state = machine.partition(T)
    assert (state.replicas, state.leader, state.leader_epoch) == ((1, 4, 5), 1, epoch + 1)


def test_all_of_the_target_must_be_in_sync(machine: Machine) -> None:
    """Earlier replicas must be, too."""
    machine.alter(T, 1, 2)
    machine.reassign(T, 2, 3, 4)
    machine.alter(T, 1, 2, 4)
    assert machine.partition(T).is_reassigning
    machine.alter(T, 1, 2, 3, 4)
    assert machine.partition(T).replicas == (2, 3, 4)


def test_what_needs_nobody_new_is_completed_at_once(machine: Machine) -> None:
    machine.reassign(T, 3, 1, 2)
    state = machine.partition(T)
    assert (state.replicas, state.leader, state.leader_epoch) == ((3, 1, 2), 1, 0)
    machine.reassign(T, 3, 2)
    state = machine.partition(T)
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((3, 2), (2, 3), 3, 1)
    assert not state.is_reassigning


def test_fewer_replicas_wait_for_one_that_lags(machine: Machine) -> None:
    machine.alter(T, 1, 3)
    machine.reassign(T, 1, 2)
    state = machine.partition(T)
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == (
        (1, 2, 3),
        (),
        (3,),
    )
    machine.alter(T, 1, 2, 3)
    assert machine.partition(T).replicas == (1, 2)


def test_cancel_restores_replicas_and_their_order(machine: Machine) -> None:
    machine.reassign(T, 3, 5, 4, 2)
    machine.alter(T, 1, 2, 3, 5)
    epoch = machine.partition(T).leader_epoch
    assert machine.reassign(T) is ErrorCode.NONE
    state = machine.partition(T)
    assert (state.replicas, state.isr, state.leader) == ((1, 2, 3), (1, 2, 3), 1)
    assert state.leader_epoch == epoch + 1, "the leader must not count 4 and 5 any more"
    assert not state.is_reassigning
    assert machine.reassign(T) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_cancel_takes_leadership_from_an_added_replica(machine: Machine) -> None:
    machine.reassign(T, 4, 5, 1)
    machine.alter(T, 1, 2, 3, 4)
    machine.fence(1)
    assert machine.partition(T).leader == 4
    assert machine.reassign(T) is ErrorCode.NONE
    state = machine.partition(T)
    assert (state.replicas, state.isr, state.leader, state.elr) == ((1, 2, 3), (2, 3), 2, ())


def test_cancel_elects_an_eligible_replica_where_no_other_is_in_sync(machine: Machine) -> None:
    machine.reassign(T, 4, 5, 1)
    machine.alter(T, 1, 2, 3, 4)
    machine.fence(1)
    machine.alter(T, 4)
    state = machine.partition(T)
    assert (state.isr, state.leader, state.elr) == ((4,), 4, (2, 3)), "below min.insync.replicas"
    assert machine.reassign(T) is ErrorCode.NONE
    state = machine.partition(T)
    assert (state.replicas, state.isr, state.leader, state.elr) == ((1, 2, 3), (2,), 2, (3,))


def test_cancel_leaves_min_insync_replicas_in_sync(machine: Machine) -> None:
    machine.reassign(T, 4, 5, 1)
    machine.alter(T, 1, 4, 5)
    assert machine.partition(T).is_reassigning is False
    machine.reassign(T, 1, 2, 3)
    machine.alter(T, 1, 2)
    assert machine.reassign(T) is ErrorCode.INVALID_REPLICA_ASSIGNMENT, "1 alone would be left"
    machine.alter(T, 1, 2, 5)
    assert machine.reassign(T) is ErrorCode.NONE
    assert machine.partition(T).isr == (1, 5)


@pytest.mark.parametrize("unclean", ["false", "true"])
def test_a_replica_that_alone_has_everything_is_not_dropped(machine: Machine, unclean: str) -> None:
    machine.create(
        "u", {0: [1, 2]}, min_insync_replicas="1", unclean_leader_election_enable=unclean
    )
    machine.reassign("u", 4, 5)
    machine.alter("u", 1, 4)
    machine.fence(1)
    before = machine.partition("u")
    assert (before.isr, before.leader, before.elr) == ((4,), 4, ())
    assert machine.reassign("u") is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert machine.reassign("u", 3, 5) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert machine.partition("u") is before
    assert machine.reassign("u", 4, 3) is ErrorCode.NONE, "4 stays"


def test_another_target_keeps_the_way_back(machine: Machine) -> None:
    machine.reassign(T, 3, 4, 5)
    machine.alter(T, 1, 2, 3, 4)
    machine.reassign(T, 5, 1, 2)
    state = machine.partition(T)
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == (
        (5, 1, 2, 3),
        (5,),
        (3,),
    )
    assert (state.isr, state.original_replicas) == ((1, 2, 3), (1, 2, 3))
    machine.reassign(T)
    assert machine.partition(T).replicas == (1, 2, 3)


def test_the_original_as_target_is_a_cancellation(machine: Machine) -> None:
    machine.reassign(T, 3, 4, 5)
    machine.reassign(T, 2, 1, 3)
    state = machine.partition(T)
    assert (state.replicas, state.is_reassigning) == ((2, 1, 3), False)


@pytest.mark.parametrize(
    ("target", "keep_factor", "code"),
    [
        ((1, 1, 2), False, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 2, 9), False, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1, 2), False, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((4, 5), True, ErrorCode.INVALID_REPLICATION_FACTOR),
        ((1, 2, 3, 4), True, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_bad_targets(
    machine: Machine, target: tuple[int, ...], keep_factor: bool, code: ErrorCode
) -> None:
    before = machine.image
    assert machine.reassign(T, *target, keep_factor=keep_factor) is code
    assert machine.image is before


def test_the_factor_is_the_original_one_meanwhile(machine: Machine) -> None:
    machine.reassign(T, 3, 4, 5)
    assert len(machine.partition(T).replicas) == 5
    assert machine.reassign(T, 1, 4, 5, keep_factor=True) is ErrorCode.NONE


def test_an_empty_target(machine: Machine) -> None:
    wish = admin.AlterPartitionReassignmentsRequest.Partition(topic=T, partition=0)
    wish.target.SetInParent()
    request = admin.AlterPartitionReassignmentsRequest(partitions=[wish])
    reply = machine.do(lambda ctx: reassignment.alter_partition_reassignments(ctx, request))
    assert reply.partitions[0].error == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_partitions_that_are_not_there_or_named_twice(machine: Machine) -> None:
    assert machine.reassign("other", 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert machine.reassign(T, 1, number=1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wish = admin.AlterPartitionReassignmentsRequest.Partition(topic=T, partition=0)
    request = admin.AlterPartitionReassignmentsRequest(partitions=[wish, wish])
    reply = machine.do(lambda ctx: reassignment.alter_partition_reassignments(ctx, request))
    assert [each.error for each in reply.partitions] == [ErrorCode.INVALID_REQUEST] * 2


def test_too_many_partitions_at_once(machine: Machine) -> None:
    wish = admin.AlterPartitionReassignmentsRequest.Partition(topic=T, partition=0)
    request = admin.AlterPartitionReassignmentsRequest(partitions=[wish] * 10_001)
    error = refusal(
        lambda: machine.do(lambda ctx: reassignment.alter_partition_reassignments(ctx, request))
    )
    assert error.code is ErrorCode.POLICY_VIOLATION


def test_a_fenced_target_is_waited_for(machine: Machine) -> None:
    machine.fence(5)
    assert machine.reassign(T, 3, 4, 5) is ErrorCode.NONE
    machine.alter(T, 1, 2, 3, 4)
    assert machine.alter(T, 1, 2, 3, 4, 5).error == ErrorCode.INELIGIBLE_REPLICA
    machine.heartbeat(5)
    machine.alter(T, 1, 2, 3, 4, 5)
    assert machine.partition(T).replicas == (3, 4, 5)


def test_it_is_completed_when_a_target_that_holds_everything_comes_back(machine: Machine) -> None:
    """The last member stays in the ISR when it is fenced. Nobody is dropped until it is back."""
    machine.create("u", {0: [1, 2]}, min_insync_replicas="1")
    machine.alter("u", 1)
    machine.fence(1)
    machine.reassign("u", 1)
    state = machine.partition("u")
    assert (state.isr, state.leader, state.is_reassigning) == ((1,), NO_LEADER, True)
    machine.heartbeat(1)
    state = machine.partition("u")
    assert (state.replicas, state.isr, state.leader, state.is_reassigning) == ((1,), (1,), 1, False)


def test_nothing_is_dropped_while_an_unclean_leader_recovers(machine: Machine) -> None:
    machine.create("u", {0: [1, 2]}, unclean_leader_election_enable="true")
    machine.reassign("u", 2)
    assert machine.partition("u").replicas == (2,)
    machine.create("v", {0: [1, 2]}, unclean_leader_election_enable="true")
    machine.alter("v", 1)
    machine.reassign("v", 2)
    machine.fence(1)
    state = machine.partition("v")
    assert (state.leader, state.unclean_elections, state.is_reassigning) == (2, 1, True)
    machine.alter("v", 2, leader_recovery_state=RECOVERED)
    state = machine.partition("v")
    assert (state.replicas, state.leader, state.is_reassigning) == ((2,), 2, False)


def test_an_added_replica_leads_uncleanly_only_on_order(machine: Machine) -> None:
    machine.create("u", {0: [1]}, unclean_leader_election_enable="true")
    machine.fence(1)
    machine.reassign("u", 4)
    assert machine.partition("u").leader == NO_LEADER


def test_more_replicas_ask_for_no_more_in_sync_before_they_are_there(machine: Machine) -> None:
    machine.create("u", {0: [1]}, min_insync_replicas="2")
    machine.reassign("u", 1, 2, 3)
    assert machine.partition("u").replication_factor == 1
    machine.alter("u", 1, 2, 3)
    machine.alter("u", 1)
    assert machine.partition("u").elr == (2, 3)


def test_it_goes_with_its_topic(machine: Machine) -> None:
    machine.reassign(T, 3, 4, 5)
    request = admin.DeleteTopicsRequest(names=[T])
    machine.do(lambda ctx: topics.delete_topics(ctx, request))
    assert listed(machine) == []
    assert machine.reassign(T) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_snapshot_keeps_it(machine: Machine) -> None:
    machine.reassign(T, 3, 4, 5)
    assert image_of(machine.image.offset + 1, list(records_of(machine.image))) == machine.image


def test_what_is_dropped_is_in_no_list() -> None:
    state = PartitionState(
        replicas=(4, 5, 1, 2),
        isr=(1, 4),
        leader=1,
        elr=(5,),
        last_known_elr=(2, 5),
        adding_replicas=(4, 5),
        removing_replicas=(1, 2),
        original_replicas=(1, 2),
    )
    back = Assignment.towards(state, (1, 2)).applied_to(state)
    assert (back.isr, back.elr, back.last_known_elr) == ((1,), (), (2,))
