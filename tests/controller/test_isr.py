"""AlterPartition is a compare-and-set."""

from __future__ import annotations

from typing import Any

import pytest

from controller import isr
from metadata.partitions import RECOVERING
from stele.errors import ErrorCode
from stele.wire.v1 import controller_pb2 as pb
from tests.support.controller import Machine, refusal


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.brokers(1, 2, 3)
    machine.create("t", {0: [1, 2, 3]}, min_insync_replicas="2")
    return machine


def member(
    machine: Machine, broker_id: int, epoch_change: int = 0
) -> pb.AlterPartitionRequest.Member:
    return pb.AlterPartitionRequest.Member(
        broker_id=broker_id, broker_epoch=machine.epoch_of(broker_id) + epoch_change
    )


def test_shrink_and_grow(machine: Machine) -> None:
    answer = machine.alter("t", 1, 2)
    assert answer.error == ErrorCode.NONE
    assert (list(answer.isr), answer.partition_epoch, answer.leader_epoch) == ([1, 2], 1, 0)
    answer = machine.alter("t", 3, 2, 1)
    assert (list(answer.isr), answer.partition_epoch) == ([1, 2, 3], 2)
    assert machine.partition("t").leader == 1


def test_the_same_again_changes_nothing(machine: Machine) -> None:
    answer = machine.alter("t", 1, 2, 3)
    assert (answer.error, answer.partition_epoch) == (ErrorCode.NONE, 0)
    assert machine.last_records == ()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"leader": 2}, ErrorCode.INVALID_REQUEST),
        ({"topic_id": b"x" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refusals(machine: Machine, changes: dict[str, Any], code: ErrorCode) -> None:
    before = machine.image
    answer = machine.alter("t", 1, 2, **changes)
    assert answer.error == code
    assert machine.image is before


@pytest.mark.parametrize("members", [(2, 3), (1, 1), (1, 4), ()])
def test_an_isr_without_the_leader_or_with_strangers(
    machine: Machine, members: tuple[int, ...]
) -> None:
    assert machine.alter("t", *members).error == ErrorCode.INVALID_REQUEST


def test_a_member_of_another_registration_is_ineligible(machine: Machine) -> None:
    machine.alter("t", 1, 2)
    stale = [member(machine, 1), member(machine, 2), member(machine, 3, -1)]
    assert machine.alter("t", isr=stale).error == ErrorCode.INELIGIBLE_REPLICA
    unknown = [member(machine, 1), pb.AlterPartitionRequest.Member(broker_id=3, broker_epoch=-1)]
    assert machine.alter("t", isr=unknown).error == ErrorCode.INELIGIBLE_REPLICA


def test_a_copy_of_a_refused_proposal_is_not_taken_once_its_member_is_back(
    machine: Machine,
) -> None:
    """The leader has seen the refusal, and commits without that member."""
    machine.alter("t", 1, 2)
    state, members = machine.partition("t"), [member(machine, each) for each in (1, 2, 3)]
    machine.fence(3)
    assert machine.alter("t", isr=members).error == ErrorCode.INELIGIBLE_REPLICA
    machine.heartbeat(3)
    late = machine.alter("t", isr=members, partition_epoch=state.partition_epoch)
    assert late.error == ErrorCode.INVALID_UPDATE_VERSION
    assert machine.partition("t").isr == (1, 2)
    assert machine.alter("t", 1, 2, 3).error == ErrorCode.NONE


def test_fenced_and_shutting_down_members_are_ineligible(machine: Machine) -> None:
    machine.fence(3)
    assert machine.alter("t", 1, 2, 3).error == ErrorCode.INELIGIBLE_REPLICA
    machine.heartbeat(2, want_shutdown=True)
    assert machine.alter("t", 1, 2).error == ErrorCode.INELIGIBLE_REPLICA


def test_a_restarted_member_must_be_heard_of_again(machine: Machine) -> None:
    heard_under = member(machine, 2)
    machine.register(2, number=1)
    machine.heartbeat(2)
    proposed = [member(machine, 1), heard_under, member(machine, 3)]
    assert machine.alter("t", isr=proposed).error == ErrorCode.INELIGIBLE_REPLICA
    assert machine.alter("t", 1, 2, 3).error == ErrorCode.NONE


def test_a_deposed_leader_is_fenced_by_epoch(machine: Machine) -> None:
    machine.fence(1)
    machine.heartbeat(1)
    answer = machine.alter("t", 1, leader=1, leader_epoch=0)
    assert answer.error == ErrorCode.FENCED_LEADER_EPOCH


def test_a_request_of_another_registration_is_refused_as_a_whole(machine: Machine) -> None:
    request = pb.AlterPartitionRequest(broker_id=1, broker_epoch=machine.epoch_of(1) - 1)
    error = refusal(lambda: machine.do(lambda c: isr.alter_partitions(c, request)))
    assert error.code is ErrorCode.STALE_BROKER_EPOCH


def test_two_partitions_in_one_request_are_judged_each(machine: Machine) -> None:
    machine.create("u", {0: [1, 2]})
    u = machine.image.topic("u")
    t = machine.image.topic("t")
    assert u is not None
    assert t is not None
    leader = [member(machine, 1)]
    request = pb.AlterPartitionRequest(
        broker_id=1,
        broker_epoch=machine.epoch_of(1),
        partitions=[
            pb.AlterPartitionRequest.Partition(topic_id=u.topic_id, isr=leader),
            pb.AlterPartitionRequest.Partition(
                topic_id=t.topic_id,
                partition_epoch=3,
                isr=leader,
            ),
        ],
    )
    answers = machine.do(lambda c: isr.alter_partitions(c, request)).partitions
    assert [answer.error for answer in answers] == [ErrorCode.NONE, ErrorCode.NOT_CONTROLLER]
    assert machine.partition("u").isr == (1,)


def test_a_partition_named_twice_is_judged_by_what_the_first_has_made_of_it(
    machine: Machine,
) -> None:
    machine.create("u", {0: [1, 2, 3]})
    t, u = machine.image.topic("t"), machine.image.topic("u")
    assert t is not None
    assert u is not None

    def proposal(topic_id: bytes, partition_epoch: int, *members: int) -> Any:
        return pb.AlterPartitionRequest.Partition(
            topic_id=topic_id,
            partition_epoch=partition_epoch,
            isr=[member(machine, each) for each in members],
        )

    request = pb.AlterPartitionRequest(
        broker_id=1,
        broker_epoch=machine.epoch_of(1),
        partitions=[
            proposal(t.topic_id, 0, 1, 2),
            proposal(u.topic_id, 0, 1),
            proposal(t.topic_id, 0, 1, 3),  # of before the first
            proposal(t.topic_id, 1, 1),
        ],
    )
    answers = machine.do(lambda c: isr.alter_partitions(c, request)).partitions
    assert [(each.error, list(each.isr), each.partition_epoch) for each in answers] == [
        (ErrorCode.NONE, [1, 2], 1),
        (ErrorCode.NONE, [1], 1),
        (ErrorCode.INVALID_UPDATE_VERSION, [], 0),
        (ErrorCode.NONE, [1], 2),
    ]
    assert machine.partition("t").isr == (1,)
    assert len(machine.last_records) == 3
