"""ListOffsets, API key 2. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class ListOffsetsPartition(Struct):
    __slots__ = ("partition_index", "current_leader_epoch", "timestamp")

    def __init__(
        self,
        partition_index: int = 0,
        current_leader_epoch: int = -1,
        timestamp: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.current_leader_epoch = current_leader_epoch
        self.timestamp = timestamp


class ListOffsetsTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        name: str = "",
        partitions: list[ListOffsetsPartition] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[ListOffsetsPartition] = [] if partitions is None else partitions


class ListOffsetsRequest(Struct):
    __slots__ = ("replica_id", "isolation_level", "topics", "timeout_ms")

    def __init__(
        self,
        replica_id: int = 0,
        isolation_level: int = 0,
        topics: list[ListOffsetsTopic] | None = None,
        timeout_ms: int = 0,
    ) -> None:
        self.replica_id = replica_id
        self.isolation_level = isolation_level
        self.topics: list[ListOffsetsTopic] = [] if topics is None else topics
        self.timeout_ms = timeout_ms


class ListOffsetsPartitionResponse(Struct):
    __slots__ = ("partition_index", "error_code", "timestamp", "offset", "leader_epoch")

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        timestamp: int = -1,
        offset: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch


class ListOffsetsTopicResponse(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        name: str = "",
        partitions: list[ListOffsetsPartitionResponse] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[ListOffsetsPartitionResponse] = (
            [] if partitions is None else partitions
        )


class ListOffsetsResponse(Struct):
    __slots__ = ("throttle_time_ms", "topics")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: list[ListOffsetsTopicResponse] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[ListOffsetsTopicResponse] = [] if topics is None else topics


API: Final = Api(
    ApiKey.LIST_OFFSETS,
    ListOffsetsRequest,
    ListOffsetsResponse,
    (
        ListOffsetsPartition,
        ListOffsetsTopic,
        ListOffsetsPartitionResponse,
        ListOffsetsTopicResponse,
    ),
    min_version=1,
    max_version=11,
    flexible_from=6,
)
