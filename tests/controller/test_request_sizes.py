"""The work of the controller is bounded by the size of a request: one decision is one turn of its
loop."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller import configs, elections, features, isr, partition_counts, reassignment, topics
from controller.machine import RECORDS_MAX, REQUEST_BYTES_MAX, Context, ControllerResult
from controller.placement import StripedPlacer
from metadata.config_keys import VALUE_BYTES_MAX
from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import controller_pb2 as pb_controller
from stele.wire.v1 import metadata_pb2 as pb
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


LONGEST = "1:1," * (VALUE_BYTES_MAX // 4)
THROTTLED = "leader.replication.throttled.replicas"


def alter(machine: Machine, *resources: admin.AlterConfigsRequest.Resource) -> list[int]:
    request = admin.AlterConfigsRequest(resources=resources)
    answer = machine.do(lambda context: configs.alter_configs(context, request))
    return [each.error for each in answer.resources]


def setting(
    topic: str, value: str, operation: admin.ListOperation = admin.ListOperation.REPLACE
) -> admin.AlterConfigsRequest.Resource:
    change = admin.AlterConfigsRequest.Change(name=THROTTLED, value=value, list_operation=operation)
    resource = admin.ConfigResource(type=pb.ConfigResourceType.TOPIC, name=topic)
    return admin.AlterConfigsRequest.Resource(resource=resource, changes=[change])


def test_a_value_has_at_most_as_many_bytes_as_a_string_of_kafka(machine: Machine) -> None:
    machine.create("long")
    assert alter(machine, setting("long", LONGEST)) == [ErrorCode.NONE]
    assert alter(machine, setting("long", LONGEST + "1:1,1:1")) == [ErrorCode.INVALID_CONFIG]
    appended = setting("long", "22:22", admin.ListOperation.APPEND)
    longest = "1:" + "1" * (VALUE_BYTES_MAX - 2)
    assert alter(machine, setting("long", longest)) == [ErrorCode.NONE]
    assert alter(machine, appended) == [ErrorCode.INVALID_CONFIG], "the whole list counts"
    answer = machine.create("born", cleanup_policy="x" * (VALUE_BYTES_MAX + 1))
    assert answer.error == ErrorCode.INVALID_CONFIG
    assert len(answer.message) < 200


def test_a_decision_takes_no_more_bytes_than_a_batch_may_have(machine: Machine) -> None:
    """Each of the resources is within its own bounds."""
    names = [f"big{number}" for number in range(300)]
    for name in names:
        machine.create(name)
    errors = alter(machine, *(setting(name, LONGEST) for name in names))
    taken = errors.count(ErrorCode.NONE)
    assert errors == [ErrorCode.NONE] * taken + [ErrorCode.POLICY_VIOLATION] * (300 - taken)
    assert len(machine.last_records) == taken
    written = sum(record.ByteSize() for record in cast(tuple[Any, ...], machine.last_records))
    assert REQUEST_BYTES_MAX * 0.99 < written <= REQUEST_BYTES_MAX


def test_created_topics_count_with_their_configurations(machine: Machine) -> None:
    request = admin.CreateTopicsRequest(
        topics=[
            admin.NewTopic(
                name=f"heavy{number}",
                partitions=1,
                replication_factor=1,
                configs={THROTTLED: LONGEST},
            )
            for number in range(300)
        ]
    )
    answer = machine.do(lambda context: topics.create_topics(context, request))
    errors = [each.error for each in answer.topics]
    taken = errors.count(ErrorCode.NONE)
    assert 250 < taken < 256
    assert errors == [ErrorCode.NONE] * taken + [ErrorCode.POLICY_VIOLATION] * (300 - taken)


def test_partitions_are_placed_only_if_there_is_room_for_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each of 10,000 topics could have 10,000 partitions placed for nothing."""
    placed = 0

    class Counting(StripedPlacer):
        def place(self, factor: int) -> tuple[int, ...]:
            nonlocal placed
            placed += 1
            return super().place(factor)

    monkeypatch.setattr(topics, "StripedPlacer", Counting)
    request = admin.CreateTopicsRequest(
        topics=[
            admin.NewTopic(name=f"wide{number}", partitions=6000, replication_factor=1)
            for number in range(50)
        ]
    )
    answer = machine.do(lambda context: topics.create_topics(context, request))
    errors = [each.error for each in answer.topics]
    assert errors == [ErrorCode.NONE] + [ErrorCode.POLICY_VIOLATION] * 49
    assert placed == 6000


def test_a_group_id_is_bounded(machine: Machine) -> None:
    change = admin.AlterConfigsRequest.Change(name="consumer.session.timeout.ms", value="50000")
    group = admin.ConfigResource(type=pb.ConfigResourceType.GROUP, name="g" * 32_768)
    resource = admin.AlterConfigsRequest.Resource(resource=group, changes=[change])
    assert alter(machine, resource) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    "too_much",
    [
        {"rack": "r" * 1001},
        {"incarnation_id": b"i" * 1001},
        {"log_directories": [b"%016d" % number for number in range(1001)]},
        {"log_directories": [b"d" * 1001]},
        {"endpoints": [pb.Endpoint(listener="L", host="h", port=1)] * 101},
        {"endpoints": [pb.Endpoint(listener="L", host="h" * 1001, port=1)]},
        {"features": [pb.FeatureRange(name=f"f{number}") for number in range(1001)]},
        {"features": [pb.FeatureRange(name="f" * 1001)]},
    ],
)
def test_what_a_broker_tells_of_itself_is_bounded(
    machine: Machine, too_much: dict[str, Any]
) -> None:
    before = machine.image
    error = refusal(lambda: machine.register(9, **too_much))
    assert error.code is ErrorCode.INVALID_REGISTRATION
    assert machine.image is before


PARTITIONS = 300


@pytest.fixture
def applied(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many partitions each new image changed. A new image costs as much as its topics have
    partitions."""
    machine.create(
        "large", {number: [1 + number % 3, 1 + (number + 1) % 3] for number in range(PARTITIONS)}
    )
    counts: list[int] = []
    apply = MetadataDelta.apply

    def counted(delta: MetadataDelta) -> MetadataImage:
        counts.append(len(delta.changed_partitions))
        return apply(delta)

    monkeypatch.setattr("controller.machine.MetadataDelta.apply", counted)
    return counts


def test_reassignments_make_one_image(machine: Machine, applied: list[int]) -> None:
    wish = admin.AlterPartitionReassignmentsRequest.Partition
    request = admin.AlterPartitionReassignmentsRequest(
        partitions=[wish(topic="large", partition=number) for number in range(PARTITIONS)]
    )
    for each in request.partitions:
        each.target.ids.extend([1, 2, 3])
    decide = reassignment.alter_partition_reassignments
    begun = Context(machine.image, machine.next_offset, {}, machine.rng, "c")
    result = decide(begun, request)
    assert len(result.records) == PARTITIONS
    for each in request.partitions:
        each.ClearField("target")
    cancelled = Context(result.image, machine.next_offset + PARTITIONS, {}, machine.rng, "c")
    assert len(decide(cancelled, request).records) == PARTITIONS
    assert applied == [PARTITIONS] * 2


def test_proposals_of_isrs_make_one_image_also_for_one_partition(
    machine: Machine, applied: list[int]
) -> None:
    """Each of the proposals is as new as the one before has made the partition."""
    topic = machine.image.topic("large")
    assert topic is not None
    leader = topic.partitions[0].leader
    broker_epoch = machine.epoch_of(leader)
    gone = pb_controller.AlterPartitionRequest.Member(broker_id=1 + leader % 3, broker_epoch=1)
    own = pb_controller.AlterPartitionRequest.Member(broker_id=leader, broker_epoch=broker_epoch)
    request = pb_controller.AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=broker_epoch,
        partitions=[
            pb_controller.AlterPartitionRequest.Partition(
                topic_id=topic.topic_id, partition_epoch=number, isr=[own, gone]
            )
            for number in range(PARTITIONS)
        ],
    )
    context = Context(machine.image, machine.next_offset, {}, machine.rng, "c")
    result = isr.alter_partitions(context, request)
    assert len(result.records) == PARTITIONS
    assert {each.error for each in result.reply.partitions} == {ErrorCode.INELIGIBLE_REPLICA}
    assert applied == [1]
