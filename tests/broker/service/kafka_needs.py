"""What each API of Kafka's protocol needs, as Kafka's documentation has it: a request about a topic
and the permissions for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.coordinator.share.types import (
    ForgetRequest,
    InitializeRequest,
    ReadRequest,
    StateKey,
    StateRequest,
    SummaryRequest,
    WriteRequest,
)
from broker.coordinator.state_messages import DELETE as DELETE_STATE
from broker.coordinator.state_messages import INITIALIZE, SUMMARY, StateApi
from broker.coordinator.state_messages import READ as READ_STATE
from broker.coordinator.state_messages import WRITE as WRITE_STATE
from broker.telemetry.subscriptions import NOTHING, subscription_id
from runtime.authorization.authorizer import CLUSTER, Operation, topic_resource
from stele.wire.kafka import ApiKey
from stele.wire.kafka.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from tests.broker.service.asked import C31, G30, T29, X53, Asked, G, X
from tests.broker.service.security_needs import OF_SECURITY
from tests.broker.service.ways import (
    ACTION,
    ALTER,
    ALTER_CONFIGS,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
    both,
    nothing,
    of_cluster,
    of_topic,
    with_topic,
)
from tests.support.batches import make_batch
from tests.support.broker_apis import topic_id

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


def _produce(transactional_id: str | None) -> Callable[[str], Any]:
    return lambda name: produce.ProduceRequest(
        transactional_id,
        -1,
        1000,
        [
            produce.TopicProduceData(
                name,
                partition_data=[produce.PartitionProduceData(0, bytearray(make_batch(3)))],
            )
        ],
    )


def _fetch(replica_id: int) -> Callable[[str], Any]:
    return lambda name: fetch.FetchRequest(
        replica_id=replica_id,
        topics=[fetch.FetchTopic(name, partitions=[fetch.FetchPartition(0)])],
    )


def _named_topics(name: str) -> Any:
    return metadata.MetadataRequest(
        [metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )


def _alter(kind: Any, request: Any, resource_type: int) -> Callable[[str], Any]:
    def made(name: str) -> Any:
        resource = {TOPIC: name, BROKER: "1", CLIENT_METRICS: "m", GROUP: "g"}[resource_type]
        return request([kind.AlterConfigsResource(resource_type, resource)])

    return made


def _txn_topic(name: str) -> Any:
    return add_partitions_to_txn.AddPartitionsToTxnTopic(name, [0])


_INSTANCE: Final = bytes(15) + b"i"  # the id of a client that pushes metrics

K = ApiKey


def _state(name: str) -> StateKey:
    return StateKey("g", topic_id(name), 0)


_STATES: Final[tuple[tuple[StateApi, Callable[[str], StateRequest]], ...]] = (
    (INITIALIZE, lambda name: InitializeRequest(_state(name), 1)),
    (READ_STATE, lambda name: ReadRequest(_state(name), 1)),
    (WRITE_STATE, lambda name: WriteRequest(_state(name), 1, 1)),
    (DELETE_STATE, lambda name: ForgetRequest(_state(name))),
    (SUMMARY, lambda name: SummaryRequest(_state(name))),
)


def _about_state(api: StateApi, request: Callable[[str], StateRequest]) -> Asked:
    return Asked(
        api.api.key, api.version, lambda name: api.encode([request(name)]), of_cluster(ACTION), C31
    )  # fmt: skip


ASKED: Final = (
    Asked(K.PRODUCE, 9, _produce(None), of_topic(WRITE), T29),
    Asked(K.PRODUCE, 9, _produce("x"), with_topic(WRITE, (WRITE, X)), T29, "in a transaction"),
    Asked(K.FETCH, 12, _fetch(-1), of_topic(READ), T29),
    Asked(K.FETCH, 12, _fetch(2), of_cluster(ACTION), T29, "of a follower"),
    Asked(
        K.LIST_OFFSETS, 7,
        lambda name: list_offsets.ListOffsetsRequest(
            -1, 0, [list_offsets.ListOffsetsTopic(name, [list_offsets.ListOffsetsPartition()])]
        ),
        lambda name: (((DESCRIBE, topic_resource(name)),), ((ACTION, CLUSTER),)), T29,
    ),
    Asked(
        K.OFFSET_FOR_LEADER_EPOCH, 4,
        lambda name: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    name, [offset_for_leader_epoch.OffsetForLeaderPartition()]
                )
            ]
        ),
        lambda name: (((DESCRIBE, topic_resource(name)),), ((ACTION, CLUSTER),)), T29,
    ),
    Asked(K.METADATA, 12, _named_topics, of_topic(DESCRIBE), T29),
    Asked(K.METADATA, 12, lambda _: metadata.MetadataRequest(None), nothing, None, "of all"),
    Asked(
        K.DESCRIBE_TOPIC_PARTITIONS, 0,
        lambda name: describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(name)]
        ),
        of_topic(DESCRIBE), T29,
    ),
    Asked(
        K.OFFSET_COMMIT, 8,
        lambda name: offset_commit.OffsetCommitRequest(
            "g", topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name=name, partitions=[offset_commit.OffsetCommitRequestPartition(0, 1)]
                )
            ],
        ),
        with_topic(READ, (READ, G)), G30,
    ),
    Asked(
        K.OFFSET_FETCH, 8,
        lambda name: offset_fetch.OffsetFetchRequest(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(
                    "g", topics=[offset_fetch.OffsetFetchRequestTopics(name, partition_indexes=[0])]
                )
            ]
        ),
        with_topic(DESCRIBE, (DESCRIBE, G)), G30,
    ),
    Asked(
        K.OFFSET_DELETE, 0,
        lambda name: offset_delete.OffsetDeleteRequest(
            "g",
            [
                offset_delete.OffsetDeleteRequestTopic(
                    name, [offset_delete.OffsetDeleteRequestPartition(0)]
                )
            ],
        ),
        with_topic(READ, (DELETE, G)), G30,
    ),
    Asked(
        K.FIND_COORDINATOR, 4,
        lambda _: find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]),
        both((DESCRIBE, G)), G30, "of a group",
    ),
    Asked(
        K.FIND_COORDINATOR, 4,
        lambda _: find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        both((DESCRIBE, X)), X53, "of a transactional id",
    ),
    Asked(
        K.FIND_COORDINATOR, 6,
        lambda _: find_coordinator.FindCoordinatorRequest(
            key_type=2, coordinator_keys=[_state("there").coordinator_key]
        ),
        of_cluster(ACTION), C31, "of a share partition",
    ),
    Asked(
        K.JOIN_GROUP, 9,
        lambda _: join_group.JoinGroupRequest(
            "g", 10_000, 10_000, "", None, "consumer",
            [join_group.JoinGroupRequestProtocol("range", b"")],
        ),
        both((READ, G)), G30,
    ),
    Asked(
        K.SYNC_GROUP, 5, lambda _: sync_group.SyncGroupRequest("g", 1, "m"), both((READ, G)), G30
    ),
    Asked(
        K.HEARTBEAT, 4, lambda _: heartbeat.HeartbeatRequest("g", 1, "m"), both((READ, G)), G30
    ),
    Asked(
        K.LEAVE_GROUP, 5,
        lambda _: leave_group.LeaveGroupRequest("g", members=[leave_group.MemberIdentity("m")]),
        both((READ, G)), G30,
    ),
    Asked(
        K.DESCRIBE_GROUPS, 5, lambda _: describe_groups.DescribeGroupsRequest(["g"]),
        both((DESCRIBE, G)), G30,
    ),
    Asked(K.LIST_GROUPS, 5, lambda _: list_groups.ListGroupsRequest(), nothing, None),
    Asked(
        K.DELETE_GROUPS, 2, lambda _: delete_groups.DeleteGroupsRequest(["g"]),
        both((DELETE, G)), G30,
    ),
    Asked(
        K.CONSUMER_GROUP_HEARTBEAT, 1,
        lambda name: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            "g", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=[name],
            topic_partitions=[],
        ),
        with_topic(DESCRIBE, (READ, G)), G30,
    ),
    Asked(
        K.CONSUMER_GROUP_DESCRIBE, 1,
        lambda _: consumer_group_describe.ConsumerGroupDescribeRequest(["g"]),
        both((DESCRIBE, G)), G30,
    ),
    Asked(
        K.SHARE_GROUP_HEARTBEAT, 1,
        lambda name: share_group_heartbeat.ShareGroupHeartbeatRequest(
            "g", "m", 0, subscribed_topic_names=[name]
        ),
        with_topic(DESCRIBE, (READ, G)), G30,
    ),
    Asked(
        K.SHARE_GROUP_DESCRIBE, 1,
        lambda _: share_group_describe.ShareGroupDescribeRequest(["g"]),
        both((DESCRIBE, G)), G30,
    ),
    Asked(
        K.SHARE_FETCH, 2,
        lambda name: share_fetch.ShareFetchRequest(
            "g", "m", 0,
            topics=[share_fetch.FetchTopic(topic_id(name), [share_fetch.FetchPartition(0)])],
        ),
        with_topic(READ, (READ, G)), G30,
    ),
    Asked(
        K.SHARE_ACKNOWLEDGE, 2,
        lambda _: share_acknowledge.ShareAcknowledgeRequest("g", "m", 1),
        both((READ, G)), G30, "of a group",
    ),
    *(_about_state(*each) for each in _STATES),
    Asked(
        K.DESCRIBE_SHARE_GROUP_OFFSETS, 1,
        lambda name: describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            [
                describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
                    "g",
                    [describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(name, [0])],
                )
            ]
        ),
        with_topic(DESCRIBE, (DESCRIBE, G)), G30,
    ),
    Asked(
        K.ALTER_SHARE_GROUP_OFFSETS, 0,
        lambda name: alter_share_group_offsets.AlterShareGroupOffsetsRequest(
            "g",
            [
                alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
                    name,
                    [alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(0, 1)],
                )
            ],
        ),
        with_topic(READ, (READ, G)), G30,
    ),
    Asked(
        K.DELETE_SHARE_GROUP_OFFSETS, 0,
        lambda name: delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
            "g", [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(name)]
        ),
        with_topic(READ, (DELETE, G)), G30,
    ),
    Asked(
        K.INIT_PRODUCER_ID, 4, lambda _: init_producer_id.InitProducerIdRequest(),
        lambda name: (((Operation.IDEMPOTENT_WRITE, CLUSTER),), ((WRITE, topic_resource(name)),)),
        C31,
    ),
    Asked(
        K.INIT_PRODUCER_ID, 4, lambda _: init_producer_id.InitProducerIdRequest("x", 1000),
        both((WRITE, X)), X53, "of a transactional id",
    ),
    Asked(
        K.INIT_PRODUCER_ID, 6,
        lambda _: init_producer_id.InitProducerIdRequest("x", 1000, enable2_pc=True),
        both((WRITE, X), (Operation.TWO_PHASE_COMMIT, X)), X53, "with two-phase commits",
    ),
    Asked(
        K.ADD_PARTITIONS_TO_TXN, 3,
        lambda name: add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_topics=[_txn_topic(name)]
        ),
        with_topic(WRITE, (WRITE, X)), X53,
    ),
    Asked(
        K.ADD_PARTITIONS_TO_TXN, 4,
        lambda name: add_partitions_to_txn.AddPartitionsToTxnRequest(
            [
                add_partitions_to_txn.AddPartitionsToTxnTransaction(
                    "x", 1, 0, True, [_txn_topic(name)]
                )
            ]
        ),
        of_cluster(ACTION), C31, "of a broker",
    ),
    Asked(
        K.ADD_OFFSETS_TO_TXN, 4,
        lambda _: add_offsets_to_txn.AddOffsetsToTxnRequest("x", 1, 0, "g"),
        both((WRITE, X), (READ, G)), X53,
    ),
    Asked(K.END_TXN, 4, lambda _: end_txn.EndTxnRequest("x", 1, 0, True), both((WRITE, X)), X53),
    Asked(
        K.TXN_OFFSET_COMMIT, 4,
        lambda name: txn_offset_commit.TxnOffsetCommitRequest(
            "x", "g", 1, 0, topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name, [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1)]
                )
            ],
        ),
        with_topic(READ, (WRITE, X), (READ, G)), X53,
    ),
    Asked(
        K.WRITE_TXN_MARKERS, 1,
        lambda name: write_txn_markers.WriteTxnMarkersRequest(
            [
                write_txn_markers.WritableTxnMarker(
                    1, 0, True, [write_txn_markers.WritableTxnMarkerTopic(name, [0])], 1
                )
            ]
        ),
        of_cluster(ACTION, ALTER), C31,
    ),
    Asked(
        K.DESCRIBE_TRANSACTIONS, 0,
        lambda _: describe_transactions.DescribeTransactionsRequest(["x"]),
        both((DESCRIBE, X)), X53,
    ),
    Asked(
        K.LIST_TRANSACTIONS, 1, lambda _: list_transactions.ListTransactionsRequest(),
        nothing, None,
    ),
    Asked(
        K.DESCRIBE_PRODUCERS, 0,
        lambda name: describe_producers.DescribeProducersRequest(
            [describe_producers.TopicRequest(name, [0])]
        ),
        of_topic(READ), T29,
    ),
    Asked(
        K.CREATE_TOPICS, 7,
        lambda name: create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic("new" + name, 1, 1)], 1000
        ),
        lambda name: (
            ((CREATE, topic_resource("new" + name)),
             (DESCRIBE_CONFIGS, topic_resource("new" + name))),
            ((CREATE, CLUSTER), (DESCRIBE_CONFIGS, topic_resource("new" + name))),
        ),
        T29,
    ),
    Asked(
        K.DELETE_TOPICS, 6,
        lambda name: delete_topics.DeleteTopicsRequest(
            [delete_topics.DeleteTopicState(name)], timeout_ms=1000
        ),
        lambda name: (((DELETE, topic_resource(name)),), ((DELETE, CLUSTER),)), T29,
    ),
    Asked(
        K.DELETE_TOPICS, 6,
        lambda name: delete_topics.DeleteTopicsRequest(
            [delete_topics.DeleteTopicState(None, topic_id("there"))], timeout_ms=1000
        ),
        lambda _: (((DELETE, topic_resource("there")),), ((DELETE, CLUSTER),)), T29, "by id",
    ),
    Asked(
        K.DELETE_RECORDS, 2,
        lambda name: delete_records.DeleteRecordsRequest(
            [
                delete_records.DeleteRecordsTopic(
                    name, [delete_records.DeleteRecordsPartition(0, 1)]
                )
            ]
        ),
        of_topic(DELETE), T29,
    ),
    Asked(
        K.CREATE_PARTITIONS, 3,
        lambda name: create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic(name, 2)], 1000
        ),
        of_topic(ALTER), T29,
    ),
    *(
        Asked(
            K.DESCRIBE_CONFIGS, 4,
            lambda name, kind=kind: describe_configs.DescribeConfigsRequest(  # type: ignore[misc]
                [
                    describe_configs.DescribeConfigsResource(
                        kind, {TOPIC: name, BROKER: "1", CLIENT_METRICS: "m", GROUP: "g"}[kind]
                    )
                ]
            ),
            ways, denied, what,
        )
        for kind, ways, denied, what in (
            (TOPIC, of_topic(DESCRIBE_CONFIGS), T29, "of a topic"),
            (GROUP, both((DESCRIBE_CONFIGS, G)), G30, "of a group"),
            (BROKER, of_cluster(DESCRIBE_CONFIGS), C31, "of a broker"),
            (CLIENT_METRICS, of_cluster(DESCRIBE_CONFIGS), C31, "of clients' metrics"),
        )
    ),
    *(
        Asked(key, version, _alter(kind, request, resource_type), ways, denied, what)
        for key, version, kind, request in (
            (K.ALTER_CONFIGS, 2, alter_configs, alter_configs.AlterConfigsRequest),
            (
                K.INCREMENTAL_ALTER_CONFIGS, 1, incremental_alter_configs,
                incremental_alter_configs.IncrementalAlterConfigsRequest,
            ),
        )
        for resource_type, ways, denied, what in (
            (TOPIC, of_topic(ALTER_CONFIGS), T29, "of a topic"),
            (GROUP, both((ALTER_CONFIGS, G)), G30, "of a group"),
            (BROKER, of_cluster(ALTER_CONFIGS), C31, "of a broker"),
            (CLIENT_METRICS, of_cluster(ALTER_CONFIGS), C31, "of clients' metrics"),
        )
    ),
    Asked(
        K.LIST_CONFIG_RESOURCES, 1,
        lambda _: list_config_resources.ListConfigResourcesRequest(),
        of_cluster(DESCRIBE_CONFIGS), C31,
    ),
    Asked(
        K.ELECT_LEADERS, 2,
        lambda name: elect_leaders.ElectLeadersRequest(
            0, [elect_leaders.TopicPartitions(name, [0])]
        ),
        of_cluster(ALTER), C31,
    ),
    Asked(
        K.ALTER_PARTITION_REASSIGNMENTS, 0,
        lambda name: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name, [alter_partition_reassignments.ReassignablePartition(0, [1])]
                )
            ]
        ),
        of_cluster(ALTER), C31,
    ),
    Asked(
        K.LIST_PARTITION_REASSIGNMENTS, 0,
        lambda _: list_partition_reassignments.ListPartitionReassignmentsRequest(),
        of_cluster(DESCRIBE), C31,
    ),
    Asked(
        K.ALTER_REPLICA_LOG_DIRS, 2,
        lambda name: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            [
                alter_replica_log_dirs.AlterReplicaLogDir(
                    "/data/a", [alter_replica_log_dirs.AlterReplicaLogDirTopic(name, [0])]
                )
            ]
        ),
        of_cluster(ALTER), C31,
    ),
    Asked(
        K.DESCRIBE_LOG_DIRS, 4, lambda _: describe_log_dirs.DescribeLogDirsRequest(),
        of_cluster(DESCRIBE), C31,
    ),
    Asked(
        K.UPDATE_FEATURES, 2,
        lambda _: update_features.UpdateFeaturesRequest(
            feature_updates=[update_features.FeatureUpdateKey("known", 1)]
        ),
        of_cluster(ALTER), C31,
    ),
    Asked(
        K.UNREGISTER_BROKER, 0, lambda _: unregister_broker.UnregisterBrokerRequest(99),
        of_cluster(ALTER), C31,
    ),
    Asked(
        K.DESCRIBE_QUORUM, 2,
        lambda _: describe_quorum.DescribeQuorumRequest(
            [
                describe_quorum.TopicRequest(
                    "__cluster_metadata", [describe_quorum.PartitionRequest(0)]
                )
            ]
        ),
        of_cluster(DESCRIBE), C31,
    ),
    *OF_SECURITY,
    Asked(
        K.DESCRIBE_CLUSTER, 2, lambda _: describe_cluster.DescribeClusterRequest(), nothing, None
    ),
    Asked(
        K.GET_TELEMETRY_SUBSCRIPTIONS, 0,
        lambda _: get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest(_INSTANCE),
        nothing, None,
    ),
    Asked(
        K.PUSH_TELEMETRY, 0,
        lambda _: push_telemetry.PushTelemetryRequest(
            _INSTANCE, subscription_id(NOTHING, _INSTANCE)
        ),
        nothing, None,
    ),
    Asked(K.API_VERSIONS, 4, lambda _: api_versions.ApiVersionsRequest("a", "1"), nothing, None),
)  # fmt: skip

BEFORE_AUTHORIZATION: Final = frozenset((K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE))
"""With these a caller says who it is."""
