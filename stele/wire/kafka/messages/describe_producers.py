"""DescribeProducers, API key 61. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import ZERO_UUID, Api, ApiKey, Struct


class TopicRequest(Struct):
    __slots__ = ("name", "partition_indexes", "topic_id")

    def __init__(
        self,
        name: str = "",
        partition_indexes: list[int] | None = None,
        topic_id: bytes = ZERO_UUID,
    ) -> None:
        self.name = name
        self.partition_indexes: list[int] = [] if partition_indexes is None else partition_indexes
        self.topic_id = topic_id


class DescribeProducersRequest(Struct):
    __slots__ = ("topics", "producer_id", "current_leader_epoch")

    def __init__(
        self,
        topics: list[TopicRequest] | None = None,
        producer_id: int = -1,
        current_leader_epoch: int = -1,
    ) -> None:
        self.topics: list[TopicRequest] = [] if topics is None else topics
        self.producer_id = producer_id
        self.current_leader_epoch = current_leader_epoch


class ProducerBatch(Struct):
    __slots__ = ("base_sequence", "last_sequence", "base_offset")

    def __init__(
        self,
        base_sequence: int = 0,
        last_sequence: int = 0,
        base_offset: int = 0,
    ) -> None:
        self.base_sequence = base_sequence
        self.last_sequence = last_sequence
        self.base_offset = base_offset


class ProducerState(Struct):
    __slots__ = (
        "producer_id",
        "producer_epoch",
        "last_sequence",
        "last_timestamp",
        "coordinator_epoch",
        "current_txn_start_offset",
        "batches",
    )

    def __init__(
        self,
        producer_id: int = 0,
        producer_epoch: int = 0,
        last_sequence: int = -1,
        last_timestamp: int = -1,
        coordinator_epoch: int = 0,
        current_txn_start_offset: int = -1,
        batches: list[ProducerBatch] | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.last_sequence = last_sequence
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_start_offset = current_txn_start_offset
        self.batches: list[ProducerBatch] = [] if batches is None else batches


class PartitionResponse(Struct):
    __slots__ = (
        "partition_index",
        "error_code",
        "error_message",
        "active_producers",
        "high_watermark",
    )

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        active_producers: list[ProducerState] | None = None,
        high_watermark: int = -1,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.active_producers: list[ProducerState] = (
            [] if active_producers is None else active_producers
        )
        self.high_watermark = high_watermark


class TopicResponse(Struct):
    __slots__ = ("name", "partitions")

    def __init__(self, name: str = "", partitions: list[PartitionResponse] | None = None) -> None:
        self.name = name
        self.partitions: list[PartitionResponse] = [] if partitions is None else partitions


class DescribeProducersResponse(Struct):
    __slots__ = ("throttle_time_ms", "topics")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: list[TopicResponse] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[TopicResponse] = [] if topics is None else topics


API: Final = Api(
    ApiKey.DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersResponse,
    (TopicRequest, ProducerBatch, ProducerState, PartitionResponse, TopicResponse),
    min_version=0,
    max_version=0,
    flexible_from=0,
)
