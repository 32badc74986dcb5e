"""TxnOffsetCommit, API key 28. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import ZERO_UUID, Api, ApiKey, Struct


class TxnOffsetCommitRequestPartition(Struct):
    __slots__ = (
        "partition_index",
        "committed_offset",
        "committed_leader_epoch",
        "committed_metadata",
    )

    def __init__(
        self,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        committed_metadata: str | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.committed_metadata = committed_metadata


class TxnOffsetCommitRequestTopic(Struct):
    __slots__ = ("name", "partitions", "topic_id")

    def __init__(
        self,
        name: str = "",
        partitions: list[TxnOffsetCommitRequestPartition] | None = None,
        topic_id: bytes = ZERO_UUID,
    ) -> None:
        self.name = name
        self.partitions: list[TxnOffsetCommitRequestPartition] = (
            [] if partitions is None else partitions
        )
        self.topic_id = topic_id


class TxnOffsetCommitRequest(Struct):
    __slots__ = (
        "transactional_id",
        "group_id",
        "producer_id",
        "producer_epoch",
        "generation_id",
        "member_id",
        "group_instance_id",
        "topics",
    )

    def __init__(
        self,
        transactional_id: str = "",
        group_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        topics: list[TxnOffsetCommitRequestTopic] | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.group_id = group_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.topics: list[TxnOffsetCommitRequestTopic] = [] if topics is None else topics


class TxnOffsetCommitResponsePartition(Struct):
    __slots__ = ("partition_index", "error_code", "error_message")

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message


class TxnOffsetCommitResponseTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        name: str = "",
        partitions: list[TxnOffsetCommitResponsePartition] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[TxnOffsetCommitResponsePartition] = (
            [] if partitions is None else partitions
        )


class TxnOffsetCommitResponse(Struct):
    __slots__ = ("throttle_time_ms", "topics", "error_message")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: list[TxnOffsetCommitResponseTopic] | None = None,
        error_message: str | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[TxnOffsetCommitResponseTopic] = [] if topics is None else topics
        self.error_message = error_message


API: Final = Api(
    ApiKey.TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    (
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
        TxnOffsetCommitResponsePartition,
        TxnOffsetCommitResponseTopic,
    ),
    min_version=0,
    max_version=5,
    flexible_from=3,
)
