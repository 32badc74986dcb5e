"""AddPartitionsToTxn, API key 24. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class AddPartitionsToTxnTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(self, name: str = "", partitions: list[int] | None = None) -> None:
        self.name = name
        self.partitions: list[int] = [] if partitions is None else partitions


class AddPartitionsToTxnTransaction(Struct):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "verify_only", "topics")

    def __init__(
        self,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        verify_only: bool = False,
        topics: list[AddPartitionsToTxnTopic] | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.verify_only = verify_only
        self.topics: list[AddPartitionsToTxnTopic] = [] if topics is None else topics


class AddPartitionsToTxnRequest(Struct):
    __slots__ = (
        "transactions",
        "v3_and_below_transactional_id",
        "v3_and_below_producer_id",
        "v3_and_below_producer_epoch",
        "v3_and_below_topics",
    )

    def __init__(
        self,
        transactions: list[AddPartitionsToTxnTransaction] | None = None,
        v3_and_below_transactional_id: str = "",
        v3_and_below_producer_id: int = 0,
        v3_and_below_producer_epoch: int = 0,
        v3_and_below_topics: list[AddPartitionsToTxnTopic] | None = None,
    ) -> None:
        self.transactions: list[AddPartitionsToTxnTransaction] = (
            [] if transactions is None else transactions
        )
        self.v3_and_below_transactional_id = v3_and_below_transactional_id
        self.v3_and_below_producer_id = v3_and_below_producer_id
        self.v3_and_below_producer_epoch = v3_and_below_producer_epoch
        self.v3_and_below_topics: list[AddPartitionsToTxnTopic] = (
            [] if v3_and_below_topics is None else v3_and_below_topics
        )


class AddPartitionsToTxnPartitionResult(Struct):
    __slots__ = ("partition_index", "partition_error_code")

    def __init__(self, partition_index: int = 0, partition_error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.partition_error_code = partition_error_code


class AddPartitionsToTxnTopicResult(Struct):
    __slots__ = ("name", "results_by_partition")

    def __init__(
        self,
        name: str = "",
        results_by_partition: list[AddPartitionsToTxnPartitionResult] | None = None,
    ) -> None:
        self.name = name
        self.results_by_partition: list[AddPartitionsToTxnPartitionResult] = (
            [] if results_by_partition is None else results_by_partition
        )


class AddPartitionsToTxnResult(Struct):
    __slots__ = ("transactional_id", "topic_results")

    def __init__(
        self,
        transactional_id: str = "",
        topic_results: list[AddPartitionsToTxnTopicResult] | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.topic_results: list[AddPartitionsToTxnTopicResult] = (
            [] if topic_results is None else topic_results
        )


class AddPartitionsToTxnResponse(Struct):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "results_by_transaction",
        "results_by_topic_v3_and_below",
    )

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        results_by_transaction: list[AddPartitionsToTxnResult] | None = None,
        results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.results_by_transaction: list[AddPartitionsToTxnResult] = (
            [] if results_by_transaction is None else results_by_transaction
        )
        self.results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = (
            [] if results_by_topic_v3_and_below is None else results_by_topic_v3_and_below
        )


API: Final = Api(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    (
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnTopicResult,
        AddPartitionsToTxnResult,
    ),
    min_version=0,
    max_version=5,
    flexible_from=3,
)
