"""InitializeShareGroupState, API key 83. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import ZERO_UUID, Api, ApiKey, Struct


class PartitionData(Struct):
    __slots__ = ("partition", "state_epoch", "start_offset")

    def __init__(self, partition: int = 0, state_epoch: int = 0, start_offset: int = 0) -> None:
        self.partition = partition
        self.state_epoch = state_epoch
        self.start_offset = start_offset


class InitializeStateData(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionData] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = [] if partitions is None else partitions


class InitializeShareGroupStateRequest(Struct):
    __slots__ = ("group_id", "topics")

    def __init__(self, group_id: str = "", topics: list[InitializeStateData] | None = None) -> None:
        self.group_id = group_id
        self.topics: list[InitializeStateData] = [] if topics is None else topics


class PartitionResult(Struct):
    __slots__ = ("partition", "error_code", "error_message")

    def __init__(
        self,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message


class InitializeStateResult(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionResult] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionResult] = [] if partitions is None else partitions


class InitializeShareGroupStateResponse(Struct):
    __slots__ = ("results",)

    def __init__(self, results: list[InitializeStateResult] | None = None) -> None:
        self.results: list[InitializeStateResult] = [] if results is None else results


API: Final = Api(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    (PartitionData, InitializeStateData, PartitionResult, InitializeStateResult),
    min_version=0,
    max_version=0,
    flexible_from=0,
)
