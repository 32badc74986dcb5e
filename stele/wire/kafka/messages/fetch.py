"""Fetch, API key 1. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import ZERO_UUID, Api, ApiKey, Records, Struct


class ReplicaState(Struct):
    __slots__ = ("replica_id", "replica_epoch")

    def __init__(self, replica_id: int = -1, replica_epoch: int = -1) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch


class FetchPartition(Struct):
    __slots__ = (
        "partition",
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "partition_max_bytes",
        "replica_directory_id",
        "high_watermark",
        "producers_after",
    )

    def __init__(
        self,
        partition: int = 0,
        current_leader_epoch: int = -1,
        fetch_offset: int = 0,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        partition_max_bytes: int = 0,
        replica_directory_id: bytes = ZERO_UUID,
        high_watermark: int = 9223372036854775807,
        producers_after: int = -1,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.partition_max_bytes = partition_max_bytes
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark
        self.producers_after = producers_after


class FetchTopic(Struct):
    __slots__ = ("topic", "topic_id", "partitions")

    def __init__(
        self,
        topic: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[FetchPartition] | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions: list[FetchPartition] = [] if partitions is None else partitions


class ForgottenTopic(Struct):
    __slots__ = ("topic", "topic_id", "partitions")

    def __init__(
        self,
        topic: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[int] | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions: list[int] = [] if partitions is None else partitions


class FetchRequest(Struct):
    __slots__ = (
        "cluster_id",
        "replica_id",
        "replica_state",
        "max_wait_ms",
        "min_bytes",
        "max_bytes",
        "isolation_level",
        "session_id",
        "session_epoch",
        "topics",
        "forgotten_topics_data",
        "rack_id",
    )

    def __init__(
        self,
        cluster_id: str | None = None,
        replica_id: int = -1,
        replica_state: ReplicaState | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        topics: list[FetchTopic] | None = None,
        forgotten_topics_data: list[ForgottenTopic] | None = None,
        rack_id: str = "",
    ) -> None:
        self.cluster_id = cluster_id
        self.replica_id = replica_id
        self.replica_state = replica_state
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics: list[FetchTopic] = [] if topics is None else topics
        self.forgotten_topics_data: list[ForgottenTopic] = (
            [] if forgotten_topics_data is None else forgotten_topics_data
        )
        self.rack_id = rack_id


class EpochEndOffset(Struct):
    __slots__ = ("epoch", "end_offset")

    def __init__(self, epoch: int = -1, end_offset: int = -1) -> None:
        self.epoch = epoch
        self.end_offset = end_offset


class LeaderIdAndEpoch(Struct):
    __slots__ = ("leader_id", "leader_epoch")

    def __init__(self, leader_id: int = -1, leader_epoch: int = -1) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class SnapshotId(Struct):
    __slots__ = ("end_offset", "epoch")

    def __init__(self, end_offset: int = -1, epoch: int = -1) -> None:
        self.end_offset = end_offset
        self.epoch = epoch


class ProducersPart(Struct):
    __slots__ = ("data", "after")

    def __init__(self, data: bytes = b"", after: int = -1) -> None:
        self.data = data
        self.after = after


class TracedBatch(Struct):
    __slots__ = ("base_offset", "context")

    def __init__(self, base_offset: int = 0, context: str = "") -> None:
        self.base_offset = base_offset
        self.context = context


class AbortedTransaction(Struct):
    __slots__ = ("producer_id", "first_offset")

    def __init__(self, producer_id: int = 0, first_offset: int = 0) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset


class PartitionData(Struct):
    __slots__ = (
        "partition_index",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "diverging_epoch",
        "current_leader",
        "snapshot_id",
        "dropped_end",
        "producers",
        "traced",
        "aborted_transactions",
        "preferred_read_replica",
        "records",
    )

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        high_watermark: int = 0,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        diverging_epoch: EpochEndOffset | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        snapshot_id: SnapshotId | None = None,
        dropped_end: int = -1,
        producers: ProducersPart | None = None,
        traced: TracedBatch | None = None,
        aborted_transactions: list[AbortedTransaction] | None = None,
        preferred_read_replica: int = -1,
        records: Records = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.diverging_epoch = diverging_epoch
        self.current_leader = current_leader
        self.snapshot_id = snapshot_id
        self.dropped_end = dropped_end
        self.producers = producers
        self.traced = traced
        self.aborted_transactions = aborted_transactions
        self.preferred_read_replica = preferred_read_replica
        self.records = records


class FetchableTopicResponse(Struct):
    __slots__ = ("topic", "topic_id", "partitions")

    def __init__(
        self,
        topic: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionData] | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = [] if partitions is None else partitions


class NodeEndpoint(Struct):
    __slots__ = ("node_id", "host", "port", "rack")

    def __init__(
        self,
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        rack: str | None = None,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack


class FetchResponse(Struct):
    __slots__ = ("throttle_time_ms", "error_code", "session_id", "responses", "node_endpoints")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        session_id: int = 0,
        responses: list[FetchableTopicResponse] | None = None,
        node_endpoints: list[NodeEndpoint] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.session_id = session_id
        self.responses: list[FetchableTopicResponse] = [] if responses is None else responses
        self.node_endpoints: list[NodeEndpoint] = [] if node_endpoints is None else node_endpoints


API: Final = Api(
    ApiKey.FETCH,
    FetchRequest,
    FetchResponse,
    (
        ReplicaState,
        FetchPartition,
        FetchTopic,
        ForgottenTopic,
        EpochEndOffset,
        LeaderIdAndEpoch,
        SnapshotId,
        ProducersPart,
        TracedBatch,
        AbortedTransaction,
        PartitionData,
        FetchableTopicResponse,
        NodeEndpoint,
    ),
    min_version=4,
    max_version=18,
    flexible_from=12,
)
