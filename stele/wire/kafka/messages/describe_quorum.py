"""DescribeQuorum, API key 55. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import ZERO_UUID, Api, ApiKey, Struct


class PartitionRequest(Struct):
    __slots__ = ("partition_index",)

    def __init__(self, partition_index: int = 0) -> None:
        self.partition_index = partition_index


class TopicRequest(Struct):
    __slots__ = ("topic_name", "partitions")

    def __init__(
        self,
        topic_name: str = "",
        partitions: list[PartitionRequest] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[PartitionRequest] = [] if partitions is None else partitions


class DescribeQuorumRequest(Struct):
    __slots__ = ("topics",)

    def __init__(self, topics: list[TopicRequest] | None = None) -> None:
        self.topics: list[TopicRequest] = [] if topics is None else topics


class ReplicaState(Struct):
    __slots__ = (
        "replica_id",
        "replica_directory_id",
        "log_end_offset",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
    )

    def __init__(
        self,
        replica_id: int = 0,
        replica_directory_id: bytes = ZERO_UUID,
        log_end_offset: int = 0,
        last_fetch_timestamp: int = -1,
        last_caught_up_timestamp: int = -1,
    ) -> None:
        self.replica_id = replica_id
        self.replica_directory_id = replica_directory_id
        self.log_end_offset = log_end_offset
        self.last_fetch_timestamp = last_fetch_timestamp
        self.last_caught_up_timestamp = last_caught_up_timestamp


class PartitionData(Struct):
    __slots__ = (
        "partition_index",
        "error_code",
        "error_message",
        "leader_id",
        "leader_epoch",
        "high_watermark",
        "current_voters",
        "observers",
    )

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        leader_id: int = 0,
        leader_epoch: int = 0,
        high_watermark: int = 0,
        current_voters: list[ReplicaState] | None = None,
        observers: list[ReplicaState] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.current_voters: list[ReplicaState] = [] if current_voters is None else current_voters
        self.observers: list[ReplicaState] = [] if observers is None else observers


class TopicData(Struct):
    __slots__ = ("topic_name", "partitions")

    def __init__(self, topic_name: str = "", partitions: list[PartitionData] | None = None) -> None:
        self.topic_name = topic_name
        self.partitions: list[PartitionData] = [] if partitions is None else partitions


class Listener(Struct):
    __slots__ = ("name", "host", "port")

    def __init__(self, name: str = "", host: str = "", port: int = 0) -> None:
        self.name = name
        self.host = host
        self.port = port


class Node(Struct):
    __slots__ = ("node_id", "listeners")

    def __init__(self, node_id: int = 0, listeners: list[Listener] | None = None) -> None:
        self.node_id = node_id
        self.listeners: list[Listener] = [] if listeners is None else listeners


class DescribeQuorumResponse(Struct):
    __slots__ = ("error_code", "error_message", "topics", "nodes")

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = None,
        topics: list[TopicData] | None = None,
        nodes: list[Node] | None = None,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.topics: list[TopicData] = [] if topics is None else topics
        self.nodes: list[Node] = [] if nodes is None else nodes


API: Final = Api(
    ApiKey.DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    (PartitionRequest, TopicRequest, ReplicaState, PartitionData, TopicData, Listener, Node),
    min_version=0,
    max_version=2,
    flexible_from=0,
)
