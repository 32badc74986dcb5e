"""CreateTopics, DeleteTopics and DescribeConfigs."""

from __future__ import annotations

import asyncio
from types import ModuleType

import pytest

from metadata.config_keys import TOPIC_KEYS
from stele.errors import ErrorCode
from stele.wire.kafka.messages import create_topics, delete_topics, describe_configs
from stele.wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from stele.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from stele.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.broker_apis import Edges, topic_id
from tests.support.worlds import virtual


def _create(*names: str, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name, 1, 1) for name in names],
        timeout_ms=5000,
        validate_only=validate_only,
    )


@pytest.mark.parametrize("version", range(2, 8))
@virtual
async def test_creates_and_answers_when_this_broker_knows(version: int) -> None:
    edges = Edges()
    edges.add_topic("old", [[1]])
    answer = await edges.client().call(create_topics.API, version, _create("new", "old"))
    new, old = answer.topics
    assert (new.name, new.error_code) == ("new", 0)
    assert edges.publisher.image.topic("new") is not None
    assert (old.error_code, old.error_message) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "no old",
    )
    if version >= 5:
        assert (new.num_partitions, new.replication_factor) == (1, 1)
        assert [config.name for config in new.configs or ()] == sorted(TOPIC_KEYS)
        assert (old.num_partitions, old.replication_factor) == (-1, -1)
        assert old.configs == []
    if version >= 7:
        assert new.topic_id == topic_id("new")


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("version", [5, 6, 7])
@virtual
async def test_tells_the_configuration_that_a_new_topic_has(
    version: int, validate_only: bool
) -> None:
    """Java's ``createTopics(...).all()`` reads it, and fails on a null."""

    edges = Edges(log_retention_ms="1234")
    default = pb.ConfigRecord(
        resource_type=pb.ConfigResourceType.BROKER, name="log.segment.bytes", value="1048576"
    )
    edges.commit(pb.MetadataRecord(config=default))
    request = _create("new", validate_only=validate_only)
    request.topics[0].configs = [CreatableTopicConfig("flush.messages", "5")]
    answer = await edges.client().call(create_topics.API, version, request)
    (topic,) = answer.topics
    assert topic.topic_config_error_code == ErrorCode.NONE
    told = {each.name: (each.value, each.config_source) for each in topic.configs or ()}
    assert told["flush.messages"] == ("5", 1)
    assert told["segment.bytes"] == ("1048576", 3)
    assert told["retention.ms"] == ("1234", 4)
    assert told["cleanup.policy"] == ("delete", 5)
    assert set(told) == set(TOPIC_KEYS)


@virtual
async def test_everything_asked_for_reaches_the_controller() -> None:
    edges = Edges()
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                "new",
                -1,
                -1,
                [CreatableReplicaAssignment(0, [1, 2]), CreatableReplicaAssignment(1, [2, 3])],
                [CreatableTopicConfig("retention.ms", "5")],
            )
        ],
        timeout_ms=5000,
    )
    await edges.client().call(create_topics.API, 7, request)
    (sent,) = edges.controller.created
    topic = sent.topics[0]
    assert [(a.partition, list(a.replicas)) for a in topic.assignments] == [
        (0, [1, 2]),
        (1, [2, 3]),
    ]
    assert dict(topic.configs) == {"retention.ms": "5"}


@virtual
async def test_validate_only_does_not_wait_for_the_topic() -> None:
    edges = Edges()
    answer = await edges.client().call(create_topics.API, 7, _create("new", validate_only=True))
    assert (answer.topics[0].error_code, answer.topics[0].topic_id) == (0, bytes(16))
    assert edges.publisher.image.topic("new") is None
    assert asyncio.get_running_loop().time() == 0


@virtual
async def test_what_the_controller_is_not_asked() -> None:
    edges = Edges()
    request = _create("twice", "twice", "null", "fine")
    request.topics[2].configs = [CreatableTopicConfig("retention.ms", None)]
    answer = await edges.client().call(create_topics.API, 7, request)
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "twice": ErrorCode.INVALID_REQUEST,
        "null": ErrorCode.INVALID_CONFIG,
        "fine": 0,
    }
    assert [t.name for t in edges.controller.created[0].topics] == ["fine"]


@virtual
async def test_many_topics_are_several_decisions_of_a_bounded_size() -> None:
    edges = Edges()
    names = [f"t{number}" for number in range(150)]
    request = _create(*names)
    request.topics[3].num_partitions = 1000
    answer = await edges.client().call(create_topics.API, 7, request)
    assert [topic.name for topic in answer.topics] == names
    assert {topic.error_code for topic in answer.topics} == {0}
    sizes = [sum(t.partitions for t in each.topics) for each in edges.controller.created]
    assert max(sizes) == 1000
    assert all(size <= 64 for size in sorted(sizes)[:-1])
    assert len({each.request_id for each in edges.controller.created}) == len(sizes)

    deletion = DeleteTopicsRequest(topic_names=names, timeout_ms=5000)
    gone = await edges.client().call(delete_topics.API, 5, deletion)
    assert [topic.name for topic in gone.responses] == names
    assert {topic.error_code for topic in gone.responses} == {0}
    assert all(edges.publisher.image.topic(name) is None for name in names)


@virtual
async def test_validated_topics_collide_with_the_others_of_their_request() -> None:
    edges = Edges()
    names = ["a.b", *(f"t{number}" for number in range(200)), "a_b"]
    await edges.client().call(create_topics.API, 7, _create(*names, validate_only=True))
    together = [{t.name for t in each.topics} for each in edges.controller.created]
    assert len(together) > 1
    assert any({"a.b", "a_b"} <= each for each in together)


@pytest.mark.parametrize("api", [create_topics, delete_topics])
@virtual
async def test_too_many_topics_are_refused_before_the_controller_is_asked(api: ModuleType) -> None:
    edges = Edges()
    names = [f"t{number}" for number in range(10_001)]
    request = (
        _create(*names)
        if api is create_topics
        else DeleteTopicsRequest(topic_names=names, timeout_ms=5000)
    )
    answer = await edges.client().call(api.API, 5, request)
    told = answer.topics if api is create_topics else answer.responses
    assert {each.error_code for each in told} == {ErrorCode.POLICY_VIOLATION}
    assert edges.controller.created == []


@virtual
async def test_no_controller_in_time() -> None:
    edges = Edges()
    edges.network.services.clear()
    client = edges.client()
    created = await client.call(create_topics.API, 7, _create("new"))
    assert created.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "unavailable" in (created.topics[0].error_message or "")
    assert asyncio.get_running_loop().time() == pytest.approx(5.0)
    deleted = await client.call(
        delete_topics.API, 5, DeleteTopicsRequest(topic_names=["x"], timeout_ms=1000)
    )
    assert deleted.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("version", range(1, 7))
@virtual
async def test_deletes_by_name(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    request = DeleteTopicsRequest(timeout_ms=1000)
    if version < 6:
        request.topic_names = ["gone", "a"]
    else:
        request.topics = [DeleteTopicState("gone"), DeleteTopicState("a")]
    answer = await edges.client().call(delete_topics.API, version, request)
    assert [(r.name, r.error_code) for r in answer.responses] == [
        ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", 0),
    ]
    assert edges.publisher.image.topic("a") is None


@virtual
async def test_deletes_by_id() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(None, topic_id("a")),
            DeleteTopicState(None, b"?" * 16),
        ],
        timeout_ms=1000,
    )
    answer = await edges.client().call(delete_topics.API, 6, request)
    assert [(r.name, r.topic_id, r.error_code) for r in answer.responses] == [
        ("a", topic_id("a"), 0),
        (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


# ---------------------------------------------------------------------- DescribeConfigs


@pytest.mark.parametrize("version", range(1, 5))
@virtual
async def test_a_topics_configuration(version: int) -> None:
    edges = Edges(log_retention_hours="2")
    edges.add_topic("a", [[1]])
    edges.commit(
        pb.MetadataRecord(
            config=pb.ConfigRecord(
                resource_type=pb.TOPIC, resource_name="a", name="segment.bytes", value="2048"
            )
        )
    )
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(2, "a")], include_documentation=True
    )
    answer = await edges.client().call(describe_configs.API, version, request)
    (result,) = answer.results
    assert (result.error_code, result.resource_type, result.resource_name) == (0, 2, "a")
    configs = {entry.name: entry for entry in result.configs}
    assert list(configs) == sorted(TOPIC_KEYS)
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == (
        "2048",
        1,
    )
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == (
        "7200000",
        4,
    )
    assert configs["min.insync.replicas"].config_source == 5
    if version >= 3:
        assert configs["retention.ms"].config_type == 5
        assert configs["retention.ms"].documentation


@virtual
async def test_some_keys_and_what_cannot_be_described() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(2, "a", ["retention.ms", "no.such.key"]),
            DescribeConfigsResource(2, "gone"),
            DescribeConfigsResource(4, "1", ["node.id", "log.retention.ms"]),
            DescribeConfigsResource(4, "2"),
            DescribeConfigsResource(8, "1"),
        ]
    )
    answer = await edges.client().call(describe_configs.API, 4, request)
    some, gone, me, other, logger = answer.results
    assert [entry.name for entry in some.configs] == ["retention.ms"]
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(e.name, e.read_only) for e in me.configs] == [
        ("log.retention.ms", False),
        ("node.id", True),
    ]
    assert other.error_code == ErrorCode.INVALID_REQUEST
    assert "broker 2" in (other.error_message or "")
    assert logger.error_code == ErrorCode.INVALID_REQUEST
