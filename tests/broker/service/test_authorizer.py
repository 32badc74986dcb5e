"""Both planes refuse what a caller may not do, with Kafka's errors."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from google.protobuf.message import Message

from runtime.authorization.authorizer import (
    ANY_TOPIC,
    CLUSTER,
    Operation,
    Resource,
    group_resource,
    topic_resource,
)
from runtime.authorization.caller import ANONYMOUS, Caller, Plane
from stele.errors import ErrorCode
from stele.wire.kafka import Api
from stele.wire.kafka.messages import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_for_leader_epoch,
    produce,
    unregister_broker,
    update_features,
)
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import raft_pb2 as raft
from tests.support.authorization import A, call_admin, edges_with_topics, told_errors
from tests.support.batches import make_batch
from tests.support.broker_apis import Edges, topic_id
from tests.support.worlds import virtual

TOPIC_CONFIG, BROKER_CONFIG, GROUP_CONFIG = 2, 4, 32
G = group_resource("g")
BATCH = bytearray(make_batch(3))


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
        G,
        describe_configs.API,
        4,
        describe_configs.DescribeConfigsRequest(
            [describe_configs.DescribeConfigsResource(GROUP_CONFIG, "g")]
        ),
    ),
    Asked(
        Operation.DESCRIBE_CONFIGS,
        CLUSTER,
        list_config_resources.API,
        1,
        list_config_resources.ListConfigResourcesRequest(),
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
    Asked(
        Operation.ALTER_CONFIGS,
        G,
        incremental_alter_configs.API,
        1,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(GROUP_CONFIG, "g")]
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
        Operation.ALTER,
        CLUSTER,
        alter_replica_log_dirs.API,
        2,
        alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            [
                alter_replica_log_dirs.AlterReplicaLogDir(
                    "/data/a", [alter_replica_log_dirs.AlterReplicaLogDirTopic("a", [0])]
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


OTHER_WAYS = {
    offset_for_leader_epoch.API: [(Operation.CLUSTER_ACTION, CLUSTER)],
    list_offsets.API: [(Operation.CLUSTER_ACTION, CLUSTER)],
    delete_topics.API: [(Operation.DELETE, CLUSTER)],
    init_producer_id.API: [(Operation.WRITE, ANY_TOPIC)],
}
"""Other permissions. Each one is enough by itself."""


def _refusal(resource: Resource, api: Api[Any, Any] | None = None) -> ErrorCode:
    if resource is CLUSTER and api is not fetch.API:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if resource is G:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED  # a follower's fetch, too, as in Kafka


@pytest.mark.parametrize(
    "asked", OVER_KAFKA, ids=lambda each: f"{each.api.key.name}-{each.operation.name}"
)
@virtual
async def test_over_kafkas_protocol(asked: Asked) -> None:
    edges = edges_with_topics()
    error = _refusal(asked.resource, asked.api)
    edges.authorizer.denied |= {(asked.operation, asked.resource), *OTHER_WAYS.get(asked.api, ())}
    answer = await edges.client().call(asked.api, asked.version, asked.request)
    assert set(told_errors(answer)) == {error}
    edges.authorizer.denied.clear()
    answer = await edges.client().call(asked.api, asked.version, asked.request)
    assert error not in told_errors(answer)
    caller = Caller(ANONYMOUS, "test", "EXTERNAL", Plane.KAFKA, "10.0.0.9")
    assert set(edges.authorizer.callers) == {caller}


OVER_GRPC: list[tuple[Operation, Resource, str, Any, Any]] = [
    (
        Operation.DESCRIBE,
        CLUSTER,
        "Admin/DescribeLogDirs",
        admin.DescribeLogDirsRequest(),
        admin.DescribeLogDirsResponse,
    ),
    (
        Operation.ALTER,
        CLUSTER,
        "Admin/AlterReplicaLogDirs",
        admin.AlterReplicaLogDirsRequest(
            replicas=[admin.AlterReplicaLogDirsRequest.Replica(topic="a", path="/data/a")]
        ),
        admin.AlterReplicaLogDirsResponse,
    ),
    (
        Operation.DELETE,
        A,
        "Admin/DeleteRecords",
        admin.DeleteRecordsRequest(partitions=[admin.DeleteRecordsRequest.Partition(topic="a")]),
        admin.DeleteRecordsResponse,
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


@pytest.mark.parametrize(
    ("operation", "resource", "method", "request_", "answer_type"),
    OVER_GRPC,
    ids=[each[2] for each in OVER_GRPC],
)
@virtual
async def test_over_grpc(
    operation: Operation, resource: Resource, method: str, request_: Message, answer_type: Any
) -> None:
    edges = edges_with_topics()
    edges.authorizer.denied.add((operation, resource))
    answer = await call_admin(edges, method, request_, answer_type)
    assert set(told_errors(answer)) == {_refusal(resource)}
    edges.authorizer.denied.clear()
    answer = await call_admin(edges, method, request_, answer_type)
    assert _refusal(resource) not in told_errors(answer)
    caller = Caller(ANONYMOUS, None, "EXTERNAL", Plane.GRPC, "10.0.0.9")
    assert set(edges.authorizer.callers) == {caller}


@pytest.mark.parametrize(("method", "request_", "answer_type"), OF_VOTERS)
@virtual
async def test_changes_of_the_quorum(method: str, request_: Message, answer_type: Any) -> None:
    edges = Edges()
    edges.authorizer.denied.add((Operation.ALTER, CLUSTER))
    answer = await call_admin(edges, f"Admin/{method}", request_, answer_type)
    assert answer.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.message == "User:ANONYMOUS may not ALTER the cluster kafka-cluster"


def _replicate(session_id: int, session_epoch: int) -> fetch.FetchRequest:
    """Fetch as broker 2, with its broker epoch."""
    return fetch.FetchRequest(
        topics=[fetch.FetchTopic("", topic_id("a"), [fetch.FetchPartition(0)])],
        replica_state=fetch.ReplicaState(2, 2),
        session_id=session_id,
        session_epoch=session_epoch,
    )


@virtual
async def test_the_epoch_of_a_broker_is_no_permission() -> None:
    """Anybody may find the epoch out. A session of a caller that was allowed before ends."""

    edges = edges_with_topics()
    client = edges.client()
    opened = await client.call(fetch.API, 18, _replicate(0, 0))
    assert (opened.error_code, len(edges.context.sessions)) == (ErrorCode.NONE, 1)
    edges.authorizer.denied.add((Operation.CLUSTER_ACTION, CLUSTER))
    edges.replicas.fetch.fetched.clear()
    answer = await client.call(fetch.API, 18, _replicate(opened.session_id, 1))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    answer = await client.call(fetch.API, 18, _replicate(0, 0))
    assert list(told_errors(answer)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert (answer.session_id, len(edges.context.sessions)) == (0, 0)
    assert edges.replicas.fetch.fetched == []
