"""Creation and deletion of topics, with good and bad input."""

from __future__ import annotations

from typing import Any

import pytest

from controller import topics
from metadata.configs import ConfigResource
from metadata.internal_topics import (
    CLEANUP,
    GROUP_TOPIC,
    INTERNAL_TOPICS,
    SHARE_TOPIC,
    TRANSACTION_TOPIC,
)
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from tests.support.controller import Machine, refusal


@pytest.fixture
def machine() -> Machine:
    machine = Machine({"num.partitions": "2", "default.replication.factor": "3"})
    machine.brokers(1, 2, 3)
    return machine


def test_created_with_an_id_partitions_and_configs(machine: Machine) -> None:
    answer = machine.create("orders", partitions=6, factor=3, retention_ms="1000")
    assert (answer.error, answer.partitions, answer.replication_factor) == (0, 6, 3)
    topic = machine.image.topic("orders")
    assert topic is not None
    assert len(topic.topic_id) == 16
    assert answer.topic_id == topic.topic_id
    assert dict(machine.image.config(ConfigResource.topic("orders"))) == {"retention.ms": "1000"}
    for state in topic.partitions:
        assert sorted(state.replicas) == [1, 2, 3]
        assert state.isr == (1, 2, 3)
        assert (state.leader, state.leader_epoch) == (state.replicas[0], 0)


def test_defaults_of_the_cluster(machine: Machine) -> None:
    answer = machine.create("t")
    assert (answer.partitions, answer.replication_factor) == (2, 3)


def test_a_new_topic_has_a_new_id(machine: Machine) -> None:
    first = machine.create("t").topic_id
    request = admin.DeleteTopicsRequest(names=["t"])
    machine.do(lambda context: topics.delete_topics(context, request))
    assert machine.create("t").topic_id != first


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "..."])
def test_good_names(name: str) -> None:
    topics.validate_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n", "__cluster_metadata"]
)
def test_bad_names(machine: Machine, name: str) -> None:
    assert machine.create(name).error == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": 1_000_000}, ErrorCode.POLICY_VIOLATION),
        ({"partitions": 10_000}, ErrorCode.POLICY_VIOLATION),
        ({"factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"segment_byts": "1"}, ErrorCode.INVALID_CONFIG),
        ({"retention_ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ({"assignments": {0: [1], 2: [1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: [1], 1: [1, 2]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: [1, 1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: [9]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: []}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: [1]}, "partitions": 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused(machine: Machine, how: dict[str, object], code: ErrorCode) -> None:
    before = machine.image
    answer = machine.create("t", **how)  # type: ignore[arg-type]
    assert answer.error == code, answer
    assert answer.message
    assert machine.image is before


def test_exists_already(machine: Machine) -> None:
    machine.create("t")
    assert machine.create("t").error == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("there", "wanted"), [("x.b", "x_b"), ("x_b", "x.b"), ("a.b_c", "a_b.c"), ("..a", "__a")]
)
def test_a_name_that_metrics_could_not_tell_from_another(
    machine: Machine, there: str, wanted: str
) -> None:
    assert machine.create(there).error == 0
    answer = machine.create(wanted)
    assert answer.error == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert there in answer.message
    assert machine.create(there).error == ErrorCode.TOPIC_ALREADY_EXISTS
    assert machine.create(there + "2").error == 0
    request = admin.DeleteTopicsRequest(names=[there])
    machine.do(lambda context: topics.delete_topics(context, request))
    assert machine.create(wanted).error == 0


def test_names_that_collide_in_one_request(machine: Machine) -> None:
    request = admin.CreateTopicsRequest(
        topics=[admin.NewTopic(name=n, partitions=1, replication_factor=1) for n in ("x.b", "x_b")]
    )
    answer = machine.do(lambda context: topics.create_topics(context, request))
    assert [topic.error for topic in answer.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_twice_in_one_request_leaves_the_others_alone(machine: Machine) -> None:
    names = ["a", "b", "a"]
    request = admin.CreateTopicsRequest(
        topics=[admin.NewTopic(name=n, partitions=1, replication_factor=1) for n in names]
    )
    answer = machine.do(lambda context: topics.create_topics(context, request))
    assert [topic.error for topic in answer.topics] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [topic.name for topic in machine.image.sorted_topics()] == ["b"]


def test_validate_only_writes_nothing(machine: Machine) -> None:
    answer = machine.create("t", partitions=4, validate_only=True)
    assert (answer.error, answer.partitions) == (0, 4)
    assert machine.image.topic("t") is None


def test_fenced_brokers_get_replicas_but_are_not_in_sync(machine: Machine) -> None:
    machine.fence(2)
    machine.create("t", {0: [2, 1, 3]})
    state = machine.partition("t")
    assert (state.leader, state.isr) == (1, (1, 3))
    machine.fence(1)
    machine.fence(3)
    assert machine.create("u", {0: [1]}).error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert machine.create("u").error == ErrorCode.INVALID_REPLICATION_FACTOR


def test_deletion_takes_the_configs_along(machine: Machine) -> None:
    machine.create("t", retention_ms="1")
    topic_id = machine.create("u").topic_id
    request = admin.DeleteTopicsRequest(names=["t", "x"], topic_ids=[topic_id, b"y" * 16])
    answer = machine.do(lambda context: topics.delete_topics(context, request))
    assert [topic.error for topic in answer.topics] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    assert machine.image.sorted_topics() == []
    assert not machine.image.config(ConfigResource.topic("t"))


def test_name_error_is_raised_with_the_reason() -> None:
    assert "letters" in refusal(lambda: topics.validate_name("a b")).message


# ---------------------------------------------------------------------------- internal topics


def cleanup(name: str) -> dict[str, Any]:
    return {key.replace(".", "_"): value for key, value in CLEANUP[name].items()}


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_an_internal_topic_cannot_be_deleted(machine: Machine, name: str) -> None:
    topic_id = machine.create(name, partitions=2, **cleanup(name)).topic_id
    machine.create("t")
    request = admin.DeleteTopicsRequest(names=[name, "t"], topic_ids=[topic_id])
    answers = machine.do(lambda context: topics.delete_topics(context, request)).topics
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [each.error for each in answers] == [refused, ErrorCode.NONE, refused]
    assert all(name in answers[each].message for each in (0, 2))
    assert machine.image.topic(name) is not None
    assert machine.image.topic("t") is None


def test_an_internal_topic_is_created_to_be_compacted_and_in_no_other_way(
    machine: Machine,
) -> None:
    for answer in (
        machine.create(GROUP_TOPIC),
        machine.create(GROUP_TOPIC, cleanup_policy="delete"),
        machine.create(GROUP_TOPIC, cleanup_policy="compact,delete"),
    ):
        assert answer.error == ErrorCode.INVALID_CONFIG
        assert "cleanup.policy=compact" in answer.message
    assert machine.create(TRANSACTION_TOPIC, cleanup_policy="compact").error == ErrorCode.NONE


@pytest.mark.parametrize("config", sorted(CLEANUP[SHARE_TOPIC]))
def test_the_states_of_share_partitions_are_neither_compacted_nor_retained_for_a_time(
    machine: Machine, config: str
) -> None:
    wanted = cleanup(SHARE_TOPIC)
    refused = machine.create(SHARE_TOPIC, **wanted | {config.replace(".", "_"): "5"})
    lacking = {key: value for key, value in wanted.items() if key != config.replace(".", "_")}
    for answer in (refused, machine.create(SHARE_TOPIC, **lacking)):
        assert answer.error == ErrorCode.INVALID_CONFIG
        assert config in answer.message
    assert machine.create(SHARE_TOPIC, **wanted).error == ErrorCode.NONE
