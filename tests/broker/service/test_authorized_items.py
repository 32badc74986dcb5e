"""Requests with many items, where a caller may see or change only some of them."""

from __future__ import annotations

from runtime.authorization.authorizer import ANY_TOPIC, CLUSTER, Operation, topic_resource
from stele.errors import ErrorCode
from stele.wire.kafka.messages import (
    describe_cluster,
    describe_topic_partitions,
    fetch,
    metadata,
)
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import metadata_pb2
from stele.wire.v1.caller_pb2 import OnBehalfOf
from tests.support.authorization import A, call_admin, edges_with_topics, told_errors
from tests.support.broker_apis import Edges, topic_id
from tests.support.worlds import virtual

TOPIC_CONFIG, BROKER_CONFIG = 2, 4


# ---------------------------------------------------------------------- item by item


@virtual
async def test_what_may_not_be_changed_is_refused_in_its_place_and_never_sent() -> None:
    edges = edges_with_topics()
    new = topic_resource("new")
    edges.authorizer.denied |= {(Operation.CREATE, CLUSTER), (Operation.CREATE, new)}
    request = admin.CreateTopicsRequest(
        topics=[admin.NewTopic(name=name) for name in ("c", "new", "d")]
    )
    answer = await call_admin(edges, "Admin/CreateTopics", request, admin.CreateTopicsResponse)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [(each.name, each.error) for each in answer.topics] == [
        ("c", 0),
        ("new", refused),
        ("d", 0),
    ]
    assert answer.topics[1].message == "User:ANONYMOUS may not CREATE the topic new"
    (sent,) = edges.controller.created
    assert [topic.name for topic in sent.topics] == ["c", "d"]


@virtual
async def test_topics_to_delete_by_name_and_by_id() -> None:
    edges = edges_with_topics()
    edges.authorizer.denied |= {(Operation.DELETE, A), (Operation.DELETE, CLUSTER)}
    request = admin.DeleteTopicsRequest(names=["a", "b"], topic_ids=[topic_id("a"), b"?" * 16])
    answer = await call_admin(edges, "Admin/DeleteTopics", request, admin.DeleteTopicsResponse)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [(each.name, each.topic_id, each.error) for each in answer.topics] == [
        ("a", b"", refused),
        ("b", topic_id("b"), 0),
        ("", topic_id("a"), refused),  # an answer by the id alone does not show the name
        ("", b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert "topic a" not in answer.topics[2].message
    (sent,) = edges.controller.deleted
    assert (list(sent.names), list(sent.topic_ids)) == (["b"], [b"?" * 16])


@virtual
async def test_an_unknown_id_is_sent_only_for_a_caller_that_may_delete_every_topic() -> None:
    edges = Edges()
    edges.authorizer.denied |= {(Operation.DELETE, ANY_TOPIC), (Operation.DELETE, CLUSTER)}
    request = admin.DeleteTopicsRequest(topic_ids=[topic_id("a")])
    answer = await call_admin(edges, "Admin/DeleteTopics", request, admin.DeleteTopicsResponse)
    assert list(told_errors(answer)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert not edges.controller.deleted
    edges.authorizer.denied.clear()
    answer = await call_admin(edges, "Admin/DeleteTopics", request, admin.DeleteTopicsResponse)
    assert list(told_errors(answer)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert len(edges.controller.deleted) == 1


@virtual
async def test_configurations_of_topics_and_of_brokers() -> None:
    edges = edges_with_topics()
    edges.authorizer.denied |= {
        (Operation.ALTER_CONFIGS, A),
        (Operation.ALTER_CONFIGS, CLUSTER),
    }
    change = admin.AlterConfigsRequest.Change(name="retention.ms", value="1000")
    request = admin.AlterConfigsRequest(
        resources=[
            admin.AlterConfigsRequest.Resource(
                resource=admin.ConfigResource(type=kind, name=name), changes=[change]
            )
            for kind, name in ((TOPIC_CONFIG, "b"), (TOPIC_CONFIG, "a"), (BROKER_CONFIG, "1"))
        ]
    )
    answer = await call_admin(edges, "Admin/AlterConfigs", request, admin.AlterConfigsResponse)
    assert [(each.resource.name, each.error) for each in answer.resources] == [
        ("b", ErrorCode.NONE),
        ("a", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("1", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ]


@virtual
async def test_nothing_is_sent_where_all_is_refused() -> None:
    edges = edges_with_topics()
    edges.authorizer.denied |= {(Operation.DELETE, A), (Operation.DELETE, CLUSTER)}
    request = admin.DeleteTopicsRequest(names=["a"])
    answer = await call_admin(edges, "Admin/DeleteTopics", request, admin.DeleteTopicsResponse)
    assert (answer.leader_id, answer.error, len(answer.topics)) == (-1, ErrorCode.NONE, 1)
    assert not edges.controller.deleted


@virtual
async def test_a_copy_is_sent_though_all_is_refused() -> None:
    """Only the controller can refuse the earlier copy too, which another broker may still send."""
    edges = edges_with_topics()
    edges.authorizer.denied |= {
        (Operation.DELETE, A),
        (Operation.DELETE, CLUSTER),
        (Operation.ALTER, CLUSTER),
    }
    copy = OnBehalfOf(repeats=True)
    request = admin.DeleteTopicsRequest(names=["a"], on_behalf_of=copy)
    await call_admin(edges, "Admin/DeleteTopics", request, admin.DeleteTopicsResponse)
    (sent,) = edges.controller.deleted
    assert (list(sent.names), sent.on_behalf_of.repeats) == (["a"], True)
    features = admin.UpdateFeaturesRequest(on_behalf_of=copy)
    await call_admin(edges, "Admin/UpdateFeatures", features, admin.UpdateFeaturesResponse)
    assert len(edges.controller.updated) == 1


@virtual
async def test_a_refusal_of_the_controller_stands_for_the_whole() -> None:
    edges = edges_with_topics()
    edges.authorizer.denied.add((Operation.ALTER, A))
    edges.controller.refuse_with = ErrorCode.POLICY_VIOLATION
    kind = admin.CreatePartitionsRequest.Topic
    request = admin.CreatePartitionsRequest(topics=[kind(name="a"), kind(name="b")])
    answer = await call_admin(
        edges, "Admin/CreatePartitions", request, admin.CreatePartitionsResponse
    )
    assert (answer.error, len(answer.topics)) == (ErrorCode.POLICY_VIOLATION, 0)


# ---------------------------------------------------------------------- what may be known


@virtual
async def test_topics_that_may_not_be_seen_are_not_listed() -> None:
    edges = edges_with_topics()
    edges.authorizer.denied.add((Operation.DESCRIBE, A))
    client = edges.client()
    everything = await client.call(metadata.API, 12, metadata.MetadataRequest(None))
    assert [topic.name for topic in everything.topics] == ["b"]
    pages = await client.call(
        describe_topic_partitions.API,
        0,
        describe_topic_partitions.DescribeTopicPartitionsRequest(),
    )
    assert [topic.name for topic in pages.topics] == ["b"]
    described = await call_admin(
        edges,
        "Admin/DescribeTopics",
        admin.DescribeTopicsRequest(),
        admin.DescribeTopicsResponse,
    )
    assert [topic.name for topic in described.topics] == ["b"]


@virtual
async def test_a_described_topic_shows_its_configuration_to_permitted_callers() -> None:
    edges = edges_with_topics()
    record = metadata_pb2.ConfigRecord(
        resource_type=metadata_pb2.TOPIC, resource_name="a", name="retention.ms", value="9"
    )
    edges.commit(metadata_pb2.MetadataRecord(config=record))
    for shown in ({"retention.ms": "9"}, {}):
        for names in ((), ("a",)):
            request = admin.DescribeTopicsRequest(names=names)
            answer = await call_admin(
                edges, "Admin/DescribeTopics", request, admin.DescribeTopicsResponse
            )
            assert (answer.topics[0].name, answer.topics[0].configs) == ("a", shown)
        edges.authorizer.denied.add((Operation.DESCRIBE_CONFIGS, A))


@virtual
async def test_only_permitted_callers_learn_whether_a_topic_exists() -> None:
    edges = edges_with_topics()
    edges.authorizer.denied |= {
        (Operation.READ, topic_resource("missing")),
        (Operation.DESCRIBE, topic_resource("missing")),
    }
    client = edges.client()
    asked = [metadata.MetadataRequestTopic(name="missing")]
    answer = await client.call(metadata.API, 12, metadata.MetadataRequest(asked))
    assert list(told_errors(answer)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert not edges.controller.created
    request = fetch.FetchRequest(
        topics=[fetch.FetchTopic("missing", partitions=[fetch.FetchPartition(0)])]
    )
    assert list(told_errors(await client.call(fetch.API, 12, request))) == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ]


@virtual
async def test_who_may_not_make_a_topic_does_not_make_it_by_asking_for_it() -> None:
    edges = edges_with_topics()
    new = topic_resource("new")
    edges.authorizer.denied |= {(Operation.CREATE, CLUSTER), (Operation.CREATE, new)}
    asked = [metadata.MetadataRequestTopic(name="new")]
    answer = await edges.client().call(metadata.API, 12, metadata.MetadataRequest(asked))
    assert list(told_errors(answer)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert not edges.controller.created


@virtual
async def test_operations_are_what_the_caller_may_do() -> None:
    edges = edges_with_topics()
    edges.authorizer.denied |= {(Operation.WRITE, A), (Operation.ALTER, CLUSTER)}
    client = edges.client()
    request = metadata.MetadataRequest(
        [metadata.MetadataRequestTopic(name=name) for name in ("a", "b")],
        include_topic_authorized_operations=True,
    )
    answer = await client.call(metadata.API, 12, request)
    a, b = (topic.topic_authorized_operations for topic in answer.topics)
    assert b == sum(1 << number for number in (3, 4, 5, 6, 7, 8, 10, 11))
    assert b - a == 1 << Operation.WRITE
    of_cluster = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)
    described = await client.call(describe_cluster.API, 2, of_cluster)
    assert described.cluster_authorized_operations == sum(
        1 << number for number in (5, 8, 9, 10, 11, 12)
    )
    edges.authorizer.denied.add((Operation.DESCRIBE, CLUSTER))
    described = await client.call(describe_cluster.API, 2, of_cluster)
    assert (described.error_code, described.cluster_authorized_operations) == (0, 0)
    plain = await client.call(metadata.API, 12, metadata.MetadataRequest(None))
    assert {topic.topic_authorized_operations for topic in plain.topics} == {-(2**31)}
