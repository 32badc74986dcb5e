"""ReadShareGroupStateSummary, API key 87. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import ZERO_UUID, Api, ApiKey, Struct


class PartitionData(Struct):
    __slots__ = ("partition", "leader_epoch")

    def __init__(self, partition: int = 0, leader_epoch: int = 0) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch


class ReadStateSummaryData(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionData] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = [] if partitions is None else partitions


class ReadShareGroupStateSummaryRequest(Struct):
    __slots__ = ("group_id", "topics")

    def __init__(
        self,
        group_id: str = "",
        topics: list[ReadStateSummaryData] | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics: list[ReadStateSummaryData] = [] if topics is None else topics


class PartitionResult(Struct):
    __slots__ = (
        "partition",
        "error_code",
        "error_message",
        "state_epoch",
        "leader_epoch",
        "start_offset",
        "delivery_complete_count",
    )

    def __init__(
        self,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count


class ReadStateSummaryResult(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionResult] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionResult] = [] if partitions is None else partitions


class ReadShareGroupStateSummaryResponse(Struct):
    __slots__ = ("results",)

    def __init__(self, results: list[ReadStateSummaryResult] | None = None) -> None:
        self.results: list[ReadStateSummaryResult] = [] if results is None else results


API: Final = Api(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    (PartitionData, ReadStateSummaryData, PartitionResult, ReadStateSummaryResult),
    min_version=0,
    max_version=1,
    flexible_from=0,
)
