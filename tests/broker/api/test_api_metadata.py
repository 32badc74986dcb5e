"""Metadata and DescribeCluster."""

from __future__ import annotations

import pytest

from metadata.internal_topics import GROUP_TOPIC
from stele.errors import ErrorCode
from stele.wire.kafka.messages import describe_cluster, metadata
from stele.wire.kafka.messages.describe_cluster import DescribeClusterRequest
from stele.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.broker_apis import Edges, topic_id
from tests.support.worlds import virtual

API = metadata.API


def _named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


def _with_ids(*ids: bytes) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(topic_id=each) for each in ids]


@pytest.mark.parametrize("version", range(14))
@virtual
async def test_brokers_and_topics_in_every_version(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1, 2], [2, 3]])
    answer = await edges.client().call(API, version, MetadataRequest(topics=_named("a")))
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [
        (1, "b1.external", 19092),
        (2, "b2.external", 19092),
        (3, "b3.external", 19092),
    ]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (0, "a")
    assert topic.topic_id == (topic_id("a") if version >= 10 else bytes(16))
    assert [p.leader_id for p in topic.partitions] == [1, 2]
    assert topic.partitions[1].replica_nodes == topic.partitions[1].isr_nodes == [2, 3]
    assert topic.partitions[0].leader_epoch == (5 if version >= 7 else -1)
    if version >= 1:
        assert answer.controller_id == 1
        assert answer.brokers[1].rack == "r2"
    if version >= 2:
        assert answer.cluster_id == "the-cluster"


@virtual
async def test_the_listener_that_was_asked_decides_about_addresses() -> None:
    edges = Edges()
    answer = await edges.client("INTERNAL").call(API, 12, MetadataRequest(topics=[]))
    assert (answer.brokers[0].host, answer.brokers[0].port) == ("b1.internal", 9092)


@virtual
async def test_all_topics_and_none() -> None:
    edges = Edges()
    edges.add_topic("b", [[1]])
    edges.add_topic("a", [[1]])
    client = edges.client()

    async def names(version: int, topics: list[MetadataRequestTopic] | None) -> list[str | None]:
        answer = await client.call(API, version, MetadataRequest(topics=topics))
        return [topic.name for topic in answer.topics]

    assert await names(0, []) == ["a", "b"]
    assert await names(1, []) == []
    assert await names(12, []) == []
    assert await names(1, None) == await names(13, None) == ["a", "b"]


@virtual
async def test_topics_by_id() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    request = MetadataRequest(topics=_with_ids(topic_id("a"), b"?" * 16))
    answer = await edges.client().call(API, 12, request)
    known, unknown = answer.topics
    assert (known.name, known.error_code) == ("a", 0)
    assert (unknown.error_code, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, b"?" * 16)
    assert unknown.name is None
    assert not edges.controller.created


@pytest.mark.parametrize("version", [12, 13])
@virtual
async def test_an_id_counts_whatever_name_stands_beside_it(version: int) -> None:
    edges = Edges(auto_create_topics_enable="true")
    edges.add_topic("a", [[1]])
    asked = [
        MetadataRequestTopic(topic_id=topic_id("a"), name=""),
        MetadataRequestTopic(topic_id=b"?" * 16, name="b"),
    ]
    answer = await edges.client().call(API, version, MetadataRequest(topics=asked))
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert not edges.controller.created


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize(("name", "id_of"), [("a", "a"), (None, "a"), (None, None)])
@virtual
async def test_versions_that_cannot_ask_by_id_are_refused(
    version: int, name: str | None, id_of: str | None
) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    wanted = bytes(16) if id_of is None else topic_id(id_of)
    asked = [MetadataRequestTopic(topic_id=wanted, name=name)]
    answer = await edges.client().call(API, version, MetadataRequest(topics=asked))
    (topic,) = answer.topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST
    assert not topic.partitions


@virtual
async def test_partitions_that_cannot_be_served() -> None:
    edges = Edges()
    edges.register(3, fenced=True)
    edges.add_topic("a", [[1, 3], [3, 1], [2]], leaders=[1, 3, -1])
    client = edges.client()
    answer = await client.call(API, 12, MetadataRequest(topics=_named("a")))
    fine, dead, leaderless = answer.topics[0].partitions
    assert fine.error_code == 0
    assert fine.offline_replicas == [3]
    assert (dead.error_code, dead.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert leaderless.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert [b.node_id for b in answer.brokers] == [1, 2]


@pytest.mark.parametrize(
    ("version", "error"),
    [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
@virtual
async def test_a_leader_without_the_clients_listener(version: int, error: ErrorCode) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    answer = await edges.client("OTHER").call(API, version, MetadataRequest(topics=_named("a")))
    assert answer.topics[0].partitions[0].error_code == error


@virtual
async def test_what_is_kept_between_answers_follows_every_change() -> None:
    edges = Edges()
    edges.add_topic("a", [[1, 2]])
    client = edges.client()
    request = MetadataRequest(topics=_named("a"))

    async def partition() -> metadata.MetadataResponsePartition:
        return (await client.call(API, 12, request)).topics[0].partitions[0]

    assert (await partition()).leader_id == 1
    assert await partition() == await partition()
    edges.commit(
        pb.MetadataRecord(
            partition_change=pb.PartitionChangeRecord(topic_id=topic_id("a"), partition=0, leader=2)
        )
    )
    changed = await partition()
    assert (changed.leader_id, changed.leader_epoch, changed.offline_replicas) == (2, 6, [])
    edges.register(2, fenced=True)
    changed = await partition()
    assert (changed.leader_id, changed.offline_replicas) == (-1, [2])
    edges.remove_topic("a")
    edges.add_topic("a", [[3]])
    assert (await partition()).leader_id == 3


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "x" * 250])
@virtual
async def test_invalid_names(name: str) -> None:
    edges = Edges()
    answer = await edges.client().call(API, 9, MetadataRequest(topics=_named(name)))
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not edges.controller.created


@virtual
async def test_a_missing_topic_is_made_and_answered_when_it_is_there() -> None:
    edges = Edges()
    answer = await edges.client().call(API, 12, MetadataRequest(topics=_named("new")))
    assert answer.topics[0].error_code == 0
    assert [p.leader_id for p in answer.topics[0].partitions] == [1]
    (request,) = edges.controller.created
    assert (request.topics[0].partitions, request.topics[0].replication_factor) == (-1, -1)


@virtual
async def test_no_topic_is_made_where_that_is_off_or_not_wanted() -> None:
    off = Edges(auto_create_topics_enable="false")
    answer = await off.client().call(API, 12, MetadataRequest(topics=_named("new")))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    on = Edges()
    request = MetadataRequest(topics=_named("new"), allow_auto_topic_creation=False)
    answer = await on.client().call(API, 4, request)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not off.controller.created

    asked = _named(GROUP_TOPIC)
    answer = await on.client().call(API, 12, MetadataRequest(topics=asked))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not on.controller.created, "a coordinator makes it, with settings of its own"


@pytest.mark.parametrize(
    ("refused", "answered"),
    [
        (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICATION_FACTOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
@virtual
async def test_a_topic_that_cannot_be_made(refused: ErrorCode, answered: ErrorCode) -> None:
    edges = Edges()
    edges.controller.refuse_with = refused
    answer = await edges.client().call(API, 12, MetadataRequest(topics=_named("new")))
    assert answer.topics[0].error_code == answered

    edges.network.services.clear()  # and no controller at all
    answer = await edges.client().call(API, 12, MetadataRequest(topics=_named("new")))
    assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


# ---------------------------------------------------------------------- DescribeCluster


@pytest.mark.parametrize("version", range(3))
@virtual
async def test_describe_cluster(version: int) -> None:
    edges = Edges()
    edges.register(3, fenced=True)
    request = DescribeClusterRequest(include_fenced_brokers=True)
    answer = await edges.client().call(describe_cluster.API, version, request)
    assert answer.cluster_id == "the-cluster"
    assert answer.controller_id == 1
    brokers = [(b.broker_id, b.host, b.is_fenced) for b in answer.brokers]
    expected = [(1, "b1.external", False), (2, "b2.external", False)]
    if version >= 2:
        expected.append((3, "b3.external", True))
    assert brokers == expected


@virtual
async def test_endpoint_type_3_is_the_grpc_address_on_the_same_listener() -> None:
    edges = Edges()
    for listener, host, port in (
        ("EXTERNAL", "b1.external", 19192),
        ("INTERNAL", "b1.internal", 9192),
    ):
        answer = await edges.client(listener).call(
            describe_cluster.API, 1, DescribeClusterRequest(endpoint_type=3)
        )
        assert answer.endpoint_type == 3
        assert (answer.brokers[0].host, answer.brokers[0].port) == (host, port)


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
@virtual
async def test_endpoint_types_that_are_not_here(endpoint_type: int, error: ErrorCode) -> None:
    answer = (
        await Edges()
        .client()
        .call(describe_cluster.API, 1, DescribeClusterRequest(endpoint_type=endpoint_type))
    )
    assert answer.error_code == error
    assert answer.error_message


@virtual
async def test_one_request_makes_no_more_topics_than_one_decision() -> None:
    """The other topics are not available yet, and the client asks again. Existing topics are
    described."""

    edges = Edges()
    edges.add_topic("old", [[1]])
    names = ["old", *(f"t{number}" for number in range(200))]
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names])
    answer = await edges.client().call(API, 12, request)
    assert [topic.name for topic in answer.topics] == names
    assert [len(each.topics) for each in edges.controller.created] == [64]
    errors = [topic.error_code for topic in answer.topics]
    assert errors == [0] * 65 + [ErrorCode.LEADER_NOT_AVAILABLE] * 136
    answer = await edges.client().call(API, 12, request)
    assert [topic.error_code for topic in answer.topics] == [0] * 129 + [5] * 72
