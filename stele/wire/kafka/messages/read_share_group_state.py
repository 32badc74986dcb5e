"""ReadShareGroupState, API key 84. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import ZERO_UUID, Api, ApiKey, Struct


class PartitionData(Struct):
    __slots__ = ("partition", "leader_epoch")

    def __init__(self, partition: int = 0, leader_epoch: int = 0) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch


class ReadStateData(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionData] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = [] if partitions is None else partitions


class ReadShareGroupStateRequest(Struct):
    __slots__ = ("group_id", "topics")

    def __init__(self, group_id: str = "", topics: list[ReadStateData] | None = None) -> None:
        self.group_id = group_id
        self.topics: list[ReadStateData] = [] if topics is None else topics


class StateBatch(Struct):
    __slots__ = ("first_offset", "last_offset", "delivery_state", "delivery_count", "rejected")

    def __init__(
        self,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_state: int = 0,
        delivery_count: int = 0,
        rejected: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_state = delivery_state
        self.delivery_count = delivery_count
        self.rejected = rejected


class PartitionResult(Struct):
    __slots__ = (
        "partition",
        "error_code",
        "error_message",
        "state_epoch",
        "start_offset",
        "state_batches",
        "letters",
    )

    def __init__(
        self,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        state_epoch: int = 0,
        start_offset: int = 0,
        state_batches: list[StateBatch] | None = None,
        letters: bytes = b"",
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.state_epoch = state_epoch
        self.start_offset = start_offset
        self.state_batches: list[StateBatch] = [] if state_batches is None else state_batches
        self.letters = letters


class ReadStateResult(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionResult] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionResult] = [] if partitions is None else partitions


class ReadShareGroupStateResponse(Struct):
    __slots__ = ("results",)

    def __init__(self, results: list[ReadStateResult] | None = None) -> None:
        self.results: list[ReadStateResult] = [] if results is None else results


API: Final = Api(
    ApiKey.READ_SHARE_GROUP_STATE,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    (PartitionData, ReadStateData, StateBatch, PartitionResult, ReadStateResult),
    min_version=0,
    max_version=0,
    flexible_from=0,
)
