"""Partitions in the controller in edge cases: one member, broker or record changes the answer."""

from __future__ import annotations

import pytest

from controller import elections, reassignment
from metadata.partitions import NO_LEADER, RECOVERING
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import controller_pb2 as pb
from tests.support.controller import Machine

T = "t"


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.brokers(1, 2, 3, 4, 5)
    machine.create(T, {0: [1, 2, 3]}, min_insync_replicas="2")
    return machine


def recovering() -> Machine:
    """A partition that broker 2 leads after an unclean election, and has not recovered."""
    machine = Machine()
    machine.brokers(1, 2)
    machine.create(T, {0: [1, 2]}, unclean_leader_election_enable="true")
    machine.fence(2)
    machine.heartbeat(2)
    machine.fence(1)
    machine.heartbeat(1)
    assert machine.partition(T).leader_recovery_state == RECOVERING
    return machine


# ----------------------------------------------------------------------------------- the ISR


def test_only_a_leader_that_recovers_alone_says_so() -> None:
    machine = recovering()
    answer = machine.alter(T, 2, leader_recovery_state=RECOVERING)
    assert (answer.error, answer.leader_recovery_state) == (ErrorCode.NONE, RECOVERING)
    answer = machine.alter(T, 1, 2, leader_recovery_state=RECOVERING)
    assert answer.error == ErrorCode.INVALID_REQUEST
    assert machine.alter(T, 1, 2).error == ErrorCode.NONE
    machine.alter(T, 2)
    answer = machine.alter(T, 2, leader_recovery_state=RECOVERING)
    assert answer.error == ErrorCode.INVALID_REQUEST


def test_a_member_that_is_registered_no_more_is_ineligible(machine: Machine) -> None:
    machine.fence(3)
    stranger = pb.AlterPartitionRequest.Member(broker_id=3, broker_epoch=machine.epoch_of(3))
    machine.unregister(3)
    members = [
        pb.AlterPartitionRequest.Member(broker_id=each, broker_epoch=machine.epoch_of(each))
        for each in (1, 2)
    ]
    answer = machine.alter(T, isr=[*members, stranger])
    assert answer.error == ErrorCode.INELIGIBLE_REPLICA


def test_a_member_without_room_may_stay_and_not_join(machine: Machine) -> None:
    machine.alter(T, 1, 2)
    machine.heartbeat(2, out_of_room=True)
    machine.heartbeat(3, out_of_room=True)
    assert machine.alter(T, 1, 2).error == ErrorCode.NONE
    assert machine.alter(T, 1, 2, 3).error == ErrorCode.INELIGIBLE_REPLICA


# -------------------------------------------------------------------------------- elections


def elect(machine: Machine, *numbers: int, unclean: bool = False) -> list[ErrorCode]:
    names = [admin.TopicPartitionName(topic=T, partition=number) for number in numbers]
    request = admin.ElectLeadersRequest(partitions=names, unclean=unclean)
    reply = machine.do(lambda context: elections.elect_leaders(context, request))
    return [ErrorCode(answer.error) for answer in reply.partitions]


def test_an_unclean_leader_need_not_be_the_preferred_one() -> None:
    machine = Machine()
    machine.brokers(1, 2)
    machine.create(T, {0: [1, 2]})
    machine.fence(2)
    machine.fence(1)
    machine.heartbeat(2)
    assert machine.partition(T).leader == NO_LEADER
    assert elect(machine, 0, unclean=True) == [ErrorCode.NONE]
    assert machine.partition(T).leader == 2


def test_elections_beyond_what_fits_into_one_decision_are_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.create("u", {0: [2, 1], 1: [2, 1]})
    machine.fence(2)
    machine.heartbeat(2)
    for number in (0, 1):
        machine.alter("u", 1, 2, number=number)
    monkeypatch.setattr(elections, "RECORDS_MAX", 1)
    names = [admin.TopicPartitionName(topic="u", partition=number) for number in (0, 1)]
    request = admin.ElectLeadersRequest(partitions=names)
    reply = machine.do(lambda context: elections.elect_leaders(context, request))
    assert [answer.error for answer in reply.partitions] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]
    assert [machine.partition("u", number).leader for number in (0, 1)] == [2, 1]


def test_an_operator_may_have_a_replica_lead_that_is_being_added() -> None:
    machine = Machine()
    machine.brokers(1, 4)
    machine.create(T, {0: [1]})
    machine.reassign(T, 4)
    machine.fence(1)
    assert elect(machine, 0, unclean=True) == [ErrorCode.NONE]
    assert machine.partition(T).leader == 4


# ----------------------------------------------------------------------------- reassignments


def refusal(machine: Machine, *target: int) -> str:
    wish = admin.AlterPartitionReassignmentsRequest.Partition(topic=T, partition=0)
    wish.target.ids.extend(target)
    request = admin.AlterPartitionReassignmentsRequest(partitions=[wish])
    reply = machine.do(lambda ctx: reassignment.alter_partition_reassignments(ctx, request))
    return reply.partitions[0].message


def test_a_target_that_is_whole_may_be_smaller_than_min_insync_replicas(machine: Machine) -> None:
    assert machine.reassign(T, 1) is ErrorCode.NONE
    assert machine.partition(T).replicas == (1,)


def test_a_refusal_names_dropped_and_lagging_brokers(machine: Machine) -> None:
    machine.reassign(T, 4, 5, 1)
    machine.alter(T, 1, 4, 5)
    machine.reassign(T, 1, 2, 3)
    machine.alter(T, 1, 2)
    assert refusal(machine, 4, 5, 1) == (
        "t-0: without [2, 3] too few replicas would have every record (the ISR is [1, 2]): "
        "wait until more "
        "of [4, 5] are in sync, or give a target that keeps the others"
    )


def test_a_refusal_names_the_brokers_that_are_not_there(machine: Machine) -> None:
    assert refusal(machine, 1, 8) == "target [1, 8]: broker 8 is not registered"
    assert refusal(machine, 8, 9) == "target [8, 9]: brokers 8, 9 are not registered"
