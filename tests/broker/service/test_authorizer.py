"""What a caller may not do is refused on both planes, with Kafka's errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from google.protobuf.message import Message

from broker.grpc.admin import AdminService
from broker.grpc.data import DataService
from broker.service.authorizer import ANY_TOPIC, CLUSTER, Operation, Resource, topic_resource
from broker.service.caller import ANONYMOUS, Caller, Plane
from stele.errors import ErrorCode
from stele.wire.kafka import Api
from stele.wire.kafka.messages import (
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_for_leader_epoch,
    produce,
    unregister_broker,
    update_features,
)
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import data_pb2 as data
from stele.wire.v1 import raft_pb2 as raft
from tests.support.broker import make_batch
from tests.support.broker_apis import Edges, topic_id
from tests.support.broker_edges import PEER, FakeStream
from tests.support.timing import run_virtual

A, B = topic_resource("a"), topic_resource("b")
TOPIC_CONFIG, BROKER_CONFIG = 2, 4
BATCH = bytearray(make_batch(3))


def told_errors(answer: Any) -> Iterator[ErrorCode]:
    """All errors anywhere in an answer, in its order, those that are none left out."""
    if isinstance(answer, Message):
        fields: Any = [
            (field.name, list(value) if field.is_repeated else value)
            for field, value in answer.ListFields()
        ]
    else:
        fields = [(name, getattr(answer, name)) for name in getattr(answer, "__slots__", ())]
    for name, value in fields:
        if name in ("error", "error_code", "topic_config_error_code"):
            if value:
                yield ErrorCode(value)
        elif isinstance(value, list):
            for each in value:
                yield from told_errors(each)
        else:
            yield from told_errors(value)


def edges_with_topics() -> Edges:
    edges = Edges()
    for name in ("a", "b"):
        edges.add_topic(name, [[1, 2]])
    return edges


class Asked(NamedTuple):
    """A request over Kafka's protocol, and the permission that it takes."""

    operation: Operation
    resource: Resource
    api: Api[Any, Any]
    version: int
    request: Any


OVER_KAFKA = [
    Asked(
        Operation.WRITE,
        A,
        produce.API,
        9,
        produce.ProduceRequest(
            None,
            -1,
            1000,
            [
                produce.TopicProduceData(
                    "a", partition_data=[produce.PartitionProduceData(0, BATCH)]
                )
            ],
        ),
    ),
    Asked(
        Operation.READ,
        A,
        fetch.API,
        12,
        fetch.FetchRequest(topics=[fetch.FetchTopic("a", partitions=[fetch.FetchPartition(0)])]),
    ),
    Asked(
        Operation.READ,
        A,
        fetch.API,
        13,
        fetch.FetchRequest(topics=[fetch.FetchTopic("", topic_id("a"), [fetch.FetchPartition(0)])]),
    ),
    Asked(
        Operation.CLUSTER_ACTION,
        CLUSTER,
        fetch.API,
        12,
        fetch.FetchRequest(
            replica_id=2, topics=[fetch.FetchTopic("a", partitions=[fetch.FetchPartition(0)])]
        ),
    ),
    Asked(
        Operation.DESCRIBE,
        A,
        metadata.API,
        12,
        metadata.MetadataRequest([metadata.MetadataRequestTopic(name="a")]),
    ),
    Asked(
        Operation.DESCRIBE,
        A,
        metadata.API,
        12,
        metadata.MetadataRequest([metadata.MetadataRequestTopic(topic_id("a"), None)]),
    ),
    Asked(
        Operation.DESCRIBE,
        A,
        describe_topic_partitions.API,
        0,
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest("a")]
        ),
    ),
    Asked(
        Operation.DESCRIBE,
        A,
        list_offsets.API,
        7,
        list_offsets.ListOffsetsRequest(
            -1, 0, [list_offsets.ListOffsetsTopic("a", [list_offsets.ListOffsetsPartition()])]
        ),
    ),
    Asked(
        Operation.DESCRIBE,
        A,
        offset_for_leader_epoch.API,
        4,
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    "a", [offset_for_leader_epoch.OffsetForLeaderPartition()]
                )
            ]
        ),
    ),
    Asked(
        Operation.DELETE,
        A,
        delete_records.API,
        2,
        delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic("a", [delete_records.DeleteRecordsPartition(0, 1)])]
        ),
    ),
    Asked(
        Operation.READ,
        A,
        describe_producers.API,
        0,
        describe_producers.DescribeProducersRequest([describe_producers.TopicRequest("a", [0])]),
    ),
    Asked(
        Operation.DESCRIBE_CONFIGS,
        A,
        describe_configs.API,
        4,
        describe_configs.DescribeConfigsRequest(
            [describe_configs.DescribeConfigsResource(TOPIC_CONFIG, "a")]
        ),
    ),
    Asked(
        Operation.DESCRIBE_CONFIGS,
        CLUSTER,
        describe_configs.API,
        4,
        describe_configs.DescribeConfigsRequest(
            [describe_configs.DescribeConfigsResource(BROKER_CONFIG, "1")]
        ),
    ),
    Asked(
        Operation.DESCRIBE_CONFIGS,
        topic_resource("new"),
        create_topics.API,
        7,
        create_topics.CreateTopicsRequest([create_topics.CreatableTopic("new", 1, 1)]),
    ),
    Asked(
        Operation.DELETE,
        A,
        delete_topics.API,
        6,
        delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState("a")], timeout_ms=1000),
    ),
    Asked(
        Operation.ALTER,
        A,
        create_partitions.API,
        3,
        create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic("a", 2)], 1000
        ),
    ),
    Asked(
        Operation.ALTER_CONFIGS,
        A,
        alter_configs.API,
        2,
        alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(TOPIC_CONFIG, "a")]),
    ),
    Asked(
        Operation.ALTER_CONFIGS,
        CLUSTER,
        incremental_alter_configs.API,
        1,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(BROKER_CONFIG, "1")]
        ),
    ),
    Asked(Operation.ALTER, CLUSTER, elect_leaders.API, 2, elect_leaders.ElectLeadersRequest()),
    Asked(
        Operation.ALTER,
        CLUSTER,
        alter_partition_reassignments.API,
        0,
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(),
    ),
    Asked(
        Operation.DESCRIBE,
        CLUSTER,
        list_partition_reassignments.API,
        0,
        list_partition_reassignments.ListPartitionReassignmentsRequest(),
    ),
    Asked(
        Operation.ALTER,
        CLUSTER,
        update_features.API,
        2,
        update_features.UpdateFeaturesRequest(
            feature_updates=[update_features.FeatureUpdateKey("known", 1)]
        ),
    ),
    Asked(
        Operation.ALTER,
        CLUSTER,
        unregister_broker.API,
        0,
        unregister_broker.UnregisterBrokerRequest(99),
    ),
    Asked(
        Operation.DESCRIBE,
        CLUSTER,
        describe_quorum.API,
        2,
        describe_quorum.DescribeQuorumRequest(
            [
                describe_quorum.TopicRequest(
                    "__cluster_metadata", [describe_quorum.PartitionRequest(0)]
                )
            ]
        ),
    ),
    Asked(
        Operation.DESCRIBE,
        CLUSTER,
        describe_log_dirs.API,
        4,
        describe_log_dirs.DescribeLogDirsRequest(),
    ),
    Asked(
        Operation.IDEMPOTENT_WRITE,
        CLUSTER,
        init_producer_id.API,
        4,
        init_producer_id.InitProducerIdRequest(),
    ),
]


def _refusal(resource: Resource, api: Api[Any, Any] | None = None) -> ErrorCode:
    if resource is CLUSTER and api is not fetch.API:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED  # a follower's fetch, too, as in Kafka


@pytest.mark.parametrize(
    "asked", OVER_KAFKA, ids=lambda each: f"{each.api.key.name}-{each.operation.name}"
)
def test_over_kafkas_protocol(asked: Asked) -> None:
    async def main() -> None:
        edges = edges_with_topics()
        error = _refusal(asked.resource, asked.api)
        edges.authorizer.denied.add((asked.operation, asked.resource))
        answer = await edges.client().call(asked.api, asked.version, asked.request)
        assert set(told_errors(answer)) == {error}
        edges.authorizer.denied.clear()
        answer = await edges.client().call(asked.api, asked.version, asked.request)
        assert error not in told_errors(answer)
        caller = Caller(ANONYMOUS, "test", "EXTERNAL", Plane.KAFKA, "10.0.0.9")
        assert set(edges.authorizer.callers) == {caller}

    run_virtual(main())


ConfigRequest = admin.AlterConfigsRequest

OVER_GRPC: list[tuple[Operation, Resource, str, Any, Any]] = [
    (
        Operation.DESCRIBE,
        A,
        "Data/Metadata",
        data.MetadataRequest(topics=["a"]),
        data.MetadataResponse,
    ),
    (
        Operation.DESCRIBE,
        A,
        "Data/ListOffsets",
        data.ListOffsetsRequest(partitions=[data.ListOffsetsRequest.Partition(topic="a")]),
        data.ListOffsetsResponse,
    ),
    (
        Operation.DELETE,
        A,
        "Data/DeleteRecords",
        data.DeleteRecordsRequest(partitions=[data.DeleteRecordsRequest.Partition(topic="a")]),
        data.DeleteRecordsResponse,
    ),
    (
        Operation.DESCRIBE,
        A,
        "Data/OffsetForLeaderEpoch",
        data.OffsetForLeaderEpochRequest(
            partitions=[data.OffsetForLeaderEpochRequest.Partition(topic="a")]
        ),
        data.OffsetForLeaderEpochResponse,
    ),
    (
        Operation.IDEMPOTENT_WRITE,
        CLUSTER,
        "Data/InitProducerId",
        data.InitProducerIdRequest(),
        data.InitProducerIdResponse,
    ),
    (
        Operation.DESCRIBE,
        A,
        "Admin/DescribeTopics",
        admin.DescribeTopicsRequest(names=["a"]),
        admin.DescribeTopicsResponse,
    ),
    (
        Operation.DESCRIBE_CONFIGS,
        A,
        "Admin/DescribeConfigs",
        admin.DescribeConfigsRequest(resources=[admin.ConfigResource(type=TOPIC_CONFIG, name="a")]),
        admin.DescribeConfigsResponse,
    ),
    (
        Operation.DESCRIBE,
        CLUSTER,
        "Admin/DescribeQuorum",
        raft.DescribeQuorumRequest(),
        raft.DescribeQuorumResponse,
    ),
    (
        Operation.DESCRIBE,
        CLUSTER,
        "Admin/ListPartitionReassignments",
        admin.ListPartitionReassignmentsRequest(),
        admin.ListPartitionReassignmentsResponse,
    ),
    (
        Operation.ALTER,
        CLUSTER,
        "Admin/ElectLeaders",
        admin.ElectLeadersRequest(),
        admin.ElectLeadersResponse,
    ),
    (
        Operation.ALTER,
        CLUSTER,
        "Admin/AlterPartitionReassignments",
        admin.AlterPartitionReassignmentsRequest(),
        admin.AlterPartitionReassignmentsResponse,
    ),
    (
        Operation.ALTER,
        CLUSTER,
        "Admin/UpdateFeatures",
        admin.UpdateFeaturesRequest(),
        admin.UpdateFeaturesResponse,
    ),
    (
        Operation.ALTER,
        CLUSTER,
        "Admin/UnregisterBroker",
        admin.UnregisterBrokerRequest(broker_id=99),
        admin.UnregisterBrokerResponse,
    ),
]

OF_VOTERS: list[tuple[str, Any, Any]] = [
    ("TransferLeadership", raft.TransferLeadershipRequest(), raft.TransferLeadershipResponse),
    ("AddVoter", raft.AddVoterRequest(), raft.VoterChangeResponse),
    ("RemoveVoter", raft.RemoveVoterRequest(), raft.VoterChangeResponse),
]


async def _call(edges: Edges, method: str, request: Message, answer: Any) -> Any:
    service = DataService(edges.context, "EXTERNAL").service()
    service.include(AdminService(edges.context, "EXTERNAL").service())
    payload = request.SerializeToString()
    return answer.FromString(await service.unary[f"/stele.v1.{method}"](payload, PEER))


@pytest.mark.parametrize(
    ("operation", "resource", "method", "request_", "answer_type"),
    OVER_GRPC,
    ids=[each[2] for each in OVER_GRPC],
)
def test_over_grpc(
    operation: Operation, resource: Resource, method: str, request_: Message, answer_type: Any
) -> None:
    async def main() -> None:
        edges = edges_with_topics()
        edges.authorizer.denied.add((operation, resource))
        answer = await _call(edges, method, request_, answer_type)
        assert set(told_errors(answer)) == {_refusal(resource)}
        edges.authorizer.denied.clear()
        answer = await _call(edges, method, request_, answer_type)
        assert _refusal(resource) not in told_errors(answer)
        caller = Caller(ANONYMOUS, None, "EXTERNAL", Plane.GRPC, "10.0.0.9")
        assert set(edges.authorizer.callers) == {caller}

    run_virtual(main())


@pytest.mark.parametrize(("method", "request_", "answer_type"), OF_VOTERS)
def test_changes_of_the_quorum(method: str, request_: Message, answer_type: Any) -> None:
    async def main() -> None:
        edges = Edges()
        edges.authorizer.denied.add((Operation.ALTER, CLUSTER))
        answer = await _call(edges, f"Admin/{method}", request_, answer_type)
        assert answer.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert answer.message == "User:ANONYMOUS may not ALTER the cluster kafka-cluster"

    run_virtual(main())


@pytest.mark.parametrize(
    ("operation", "method", "request_", "answer_type"),
    [
        (
            Operation.WRITE,
            "Produce",
            data.ProduceRequest(
                acks=-1,
                partitions=[data.ProduceRequest.Partition(topic="a", records=bytes(BATCH))],
            ),
            data.ProduceResponse,
        ),
        (
            Operation.READ,
            "Fetch",
            data.FetchRequest(partitions=[data.FetchRequest.Partition(topic="a")]),
            data.FetchResponse,
        ),
    ],
)
def test_streams_over_grpc(
    operation: Operation, method: str, request_: Message, answer_type: Any
) -> None:
    async def main() -> None:
        edges = edges_with_topics()
        edges.authorizer.denied.add((operation, A))
        client, server = FakeStream.pair()
        await client.send(request_.SerializeToString())
        client.peer.inbox.put_nowait(None)
        service = DataService(edges.context, "EXTERNAL").service()
        await service.streams[f"/stele.v1.Data/{method}"](server, PEER)
        answer = answer_type.FromString(await client.receive())
        assert list(told_errors(answer)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert not edges.replicas.produced

    run_virtual(main())


# ---------------------------------------------------------------------- item by item


def test_what_may_not_be_changed_is_refused_in_its_place_and_never_sent() -> None:
    async def main() -> None:
        edges = edges_with_topics()
        new = topic_resource("new")
        edges.authorizer.denied |= {(Operation.CREATE, CLUSTER), (Operation.CREATE, new)}
        request = admin.CreateTopicsRequest(
            topics=[admin.NewTopic(name=name) for name in ("c", "new", "d")]
        )
        answer = await _call(edges, "Admin/CreateTopics", request, admin.CreateTopicsResponse)
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [(each.name, each.error) for each in answer.topics] == [
            ("c", 0),
            ("new", refused),
            ("d", 0),
        ]
        assert answer.topics[1].message == "User:ANONYMOUS may not CREATE the topic new"
        (sent,) = edges.controller.created
        assert [topic.name for topic in sent.topics] == ["c", "d"]

    run_virtual(main())


def test_topics_to_delete_by_name_and_by_id() -> None:
    async def main() -> None:
        edges = edges_with_topics()
        edges.authorizer.denied.add((Operation.DELETE, A))
        request = admin.DeleteTopicsRequest(names=["a", "b"], topic_ids=[topic_id("a"), b"?" * 16])
        answer = await _call(edges, "Admin/DeleteTopics", request, admin.DeleteTopicsResponse)
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [(each.name, each.topic_id, each.error) for each in answer.topics] == [
            ("a", b"", refused),
            ("b", topic_id("b"), 0),
            ("", topic_id("a"), refused),  # who knows only the id is not told the name
            ("", b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        assert "topic a" not in answer.topics[2].message
        (sent,) = edges.controller.deleted
        assert (list(sent.names), list(sent.topic_ids)) == (["b"], [b"?" * 16])

    run_virtual(main())


def test_an_id_that_is_not_known_here_yet_is_sent_only_for_who_may_delete_every_topic() -> None:
    async def main() -> None:
        edges = Edges()
        edges.authorizer.denied.add((Operation.DELETE, ANY_TOPIC))
        request = admin.DeleteTopicsRequest(topic_ids=[topic_id("a")])
        answer = await _call(edges, "Admin/DeleteTopics", request, admin.DeleteTopicsResponse)
        assert list(told_errors(answer)) == [ErrorCode.UNKNOWN_TOPIC_ID]
        assert not edges.controller.deleted
        edges.authorizer.denied.clear()
        answer = await _call(edges, "Admin/DeleteTopics", request, admin.DeleteTopicsResponse)
        assert list(told_errors(answer)) == [ErrorCode.UNKNOWN_TOPIC_ID]
        assert len(edges.controller.deleted) == 1

    run_virtual(main())


def test_configurations_of_topics_and_of_brokers() -> None:
    async def main() -> None:
        edges = edges_with_topics()
        edges.authorizer.denied |= {
            (Operation.ALTER_CONFIGS, A),
            (Operation.ALTER_CONFIGS, CLUSTER),
        }
        change = ConfigRequest.Change(name="retention.ms", value="1000")
        request = ConfigRequest(
            resources=[
                ConfigRequest.Resource(
                    resource=admin.ConfigResource(type=kind, name=name), changes=[change]
                )
                for kind, name in ((TOPIC_CONFIG, "b"), (TOPIC_CONFIG, "a"), (BROKER_CONFIG, "1"))
            ]
        )
        answer = await _call(edges, "Admin/AlterConfigs", request, admin.AlterConfigsResponse)
        assert [(each.resource.name, each.error) for each in answer.resources] == [
            ("b", ErrorCode.NONE),
            ("a", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ("1", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ]

    run_virtual(main())


def test_nothing_is_sent_where_all_is_refused() -> None:
    async def main() -> None:
        edges = edges_with_topics()
        edges.authorizer.denied.add((Operation.DELETE, A))
        request = admin.DeleteTopicsRequest(names=["a"])
        answer = await _call(edges, "Admin/DeleteTopics", request, admin.DeleteTopicsResponse)
        assert (answer.leader_id, answer.error, len(answer.topics)) == (-1, ErrorCode.NONE, 1)
        assert not edges.controller.deleted

    run_virtual(main())


def test_a_refusal_of_the_controller_stands_for_the_whole() -> None:
    async def main() -> None:
        edges = edges_with_topics()
        edges.authorizer.denied.add((Operation.ALTER, A))
        edges.controller.refuse_with = ErrorCode.POLICY_VIOLATION
        kind = admin.CreatePartitionsRequest.Topic
        request = admin.CreatePartitionsRequest(topics=[kind(name="a"), kind(name="b")])
        answer = await _call(
            edges, "Admin/CreatePartitions", request, admin.CreatePartitionsResponse
        )
        assert (answer.error, len(answer.topics)) == (ErrorCode.POLICY_VIOLATION, 0)

    run_virtual(main())


# ---------------------------------------------------------------------- what may be known


def test_topics_that_may_not_be_seen_are_not_listed() -> None:
    async def main() -> None:
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
        described = await _call(
            edges,
            "Admin/DescribeTopics",
            admin.DescribeTopicsRequest(),
            admin.DescribeTopicsResponse,
        )
        assert [topic.name for topic in described.topics] == ["b"]

    run_virtual(main())


def test_whether_a_topic_exists_is_not_told_who_may_not_know() -> None:
    async def main() -> None:
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

    run_virtual(main())


def test_who_may_not_make_a_topic_does_not_make_it_by_asking_for_it() -> None:
    async def main() -> None:
        edges = edges_with_topics()
        new = topic_resource("new")
        edges.authorizer.denied |= {(Operation.CREATE, CLUSTER), (Operation.CREATE, new)}
        asked = [metadata.MetadataRequestTopic(name="new")]
        answer = await edges.client().call(metadata.API, 12, metadata.MetadataRequest(asked))
        assert list(told_errors(answer)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert not edges.controller.created

    run_virtual(main())


def test_operations_are_those_that_the_caller_may_do() -> None:
    async def main() -> None:
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
        of_cluster = describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=True
        )
        described = await client.call(describe_cluster.API, 2, of_cluster)
        assert described.cluster_authorized_operations == sum(
            1 << number for number in (5, 8, 9, 10, 11, 12)
        )
        edges.authorizer.denied.add((Operation.DESCRIBE, CLUSTER))
        described = await client.call(describe_cluster.API, 2, of_cluster)
        assert (described.error_code, described.cluster_authorized_operations) == (0, 0)
        plain = await client.call(metadata.API, 12, metadata.MetadataRequest(None))
        assert {topic.topic_authorized_operations for topic in plain.topics} == {-(2**31)}

    run_virtual(main())
