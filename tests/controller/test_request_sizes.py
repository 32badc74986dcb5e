"""The work of the controller is bounded by the size of a request: one decision is one turn of its
loop."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller import configs, elections, features, partition_counts, reassignment, topics
from controller.machine import RECORDS_MAX, Context, ControllerResult
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from tests.support.controller import Machine, refusal

TOO_MANY = RECORDS_MAX + 1


@pytest.fixture(scope="module")
def machine() -> Machine:
    machine = Machine()
    machine.brokers(1, 2, 3)
    return machine


def too_many() -> list[tuple[Callable[..., ControllerResult[Any]], Any]]:
    names = [f"n{number}" for number in range(TOO_MANY)]
    change = admin.AlterConfigsRequest.Resource
    return [
        (
            topics.create_topics,
            admin.CreateTopicsRequest(topics=[admin.NewTopic(name=name) for name in names]),
        ),
        (topics.delete_topics, admin.DeleteTopicsRequest(names=names)),
        (topics.delete_topics, admin.DeleteTopicsRequest(topic_ids=[b"i" * 16] * TOO_MANY)),
        (configs.alter_configs, admin.AlterConfigsRequest(resources=[change()] * TOO_MANY)),
        (
            configs.alter_configs,
            admin.AlterConfigsRequest(
                resources=[
                    change(changes=[admin.AlterConfigsRequest.Change(name=n) for n in names])
                ]
            ),
        ),
        (
            partition_counts.create_partitions,
            admin.CreatePartitionsRequest(
                topics=[admin.CreatePartitionsRequest.Topic(name=name) for name in names]
            ),
        ),
        (
            features.update_features,
            admin.UpdateFeaturesRequest(
                updates=[admin.UpdateFeaturesRequest.Update(name=name) for name in names]
            ),
        ),
        (
            elections.elect_leaders,
            admin.ElectLeadersRequest(
                partitions=[admin.TopicPartitionName(topic=name) for name in names]
            ),
        ),
        (
            reassignment.alter_partition_reassignments,
            admin.AlterPartitionReassignmentsRequest(
                partitions=[
                    admin.AlterPartitionReassignmentsRequest.Partition(topic=name) for name in names
                ]
            ),
        ),
    ]


@pytest.mark.parametrize("number", range(len(too_many())))
def test_a_request_that_names_too_much_is_refused_as_a_whole(machine: Machine, number: int) -> None:
    decide, request = too_many()[number]
    before = machine.image
    error = refusal(lambda: machine.do(lambda context: decide(context, request)))
    assert error.code is ErrorCode.POLICY_VIOLATION
    assert machine.image is before


class Name(str):
    """Counts comparisons of names."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def comparisons(machine: Machine, count: int) -> int:
    """Count comparisons with names that no topic may have, so that only the check of names is
    counted."""
    wanted = [
        SimpleNamespace(name=Name(f"{number} is no name"), configs={}, assignments=[])
        for number in range(count)
    ]
    request = SimpleNamespace(topics=[*wanted, wanted[0]], validate_only=False)
    Name.compared = 0

    def decide(context: Context) -> ControllerResult[admin.CreateTopicsResponse]:
        return topics.create_topics(context, cast(admin.CreateTopicsRequest, request))

    answers = machine.do(decide).topics
    assert answers[0].error == answers[-1].error == ErrorCode.INVALID_REQUEST
    assert answers[1].error == ErrorCode.INVALID_TOPIC_EXCEPTION
    return Name.compared


def test_topics_of_one_request_are_looked_at_once_each(machine: Machine) -> None:
    assert comparisons(machine, 2000) <= 4 * 2000


def test_a_resource_named_twice_is_changed_by_neither(machine: Machine) -> None:
    machine.create("twice")
    resource = admin.AlterConfigsRequest.Resource(
        resource=admin.ConfigResource(type=2, name="twice"),
        changes=[admin.AlterConfigsRequest.Change(name="retention.ms", value="1000")],
    )
    request = admin.AlterConfigsRequest(resources=[resource, resource])
    answer = machine.do(lambda context: configs.alter_configs(context, request))
    assert [each.error for each in answer.resources] == [ErrorCode.INVALID_REQUEST] * 2
