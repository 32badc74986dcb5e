"""DescribeTransactions, API key 65. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class DescribeTransactionsRequest(Struct):
    __slots__ = ("transactional_ids",)

    def __init__(self, transactional_ids: list[str] | None = None) -> None:
        self.transactional_ids: list[str] = [] if transactional_ids is None else transactional_ids


class TopicData(Struct):
    __slots__ = ("topic", "partitions")

    def __init__(self, topic: str = "", partitions: list[int] | None = None) -> None:
        self.topic = topic
        self.partitions: list[int] = [] if partitions is None else partitions


class TransactionState(Struct):
    __slots__ = (
        "error_code",
        "transactional_id",
        "transaction_state",
        "transaction_timeout_ms",
        "transaction_start_time_ms",
        "producer_id",
        "producer_epoch",
        "topics",
    )

    def __init__(
        self,
        error_code: int = 0,
        transactional_id: str = "",
        transaction_state: str = "",
        transaction_timeout_ms: int = 0,
        transaction_start_time_ms: int = 0,
        producer_id: int = 0,
        producer_epoch: int = 0,
        topics: list[TopicData] | None = None,
    ) -> None:
        self.error_code = error_code
        self.transactional_id = transactional_id
        self.transaction_state = transaction_state
        self.transaction_timeout_ms = transaction_timeout_ms
        self.transaction_start_time_ms = transaction_start_time_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.topics: list[TopicData] = [] if topics is None else topics


class DescribeTransactionsResponse(Struct):
    __slots__ = ("throttle_time_ms", "transaction_states")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        transaction_states: list[TransactionState] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.transaction_states: list[TransactionState] = (
            [] if transaction_states is None else transaction_states
        )


API: Final = Api(
    ApiKey.DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    (TopicData, TransactionState),
    min_version=0,
    max_version=0,
    flexible_from=0,
)
