"""ListTransactions, API key 66. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class ListTransactionsRequest(Struct):
    __slots__ = (
        "state_filters",
        "producer_id_filters",
        "duration_filter",
        "transactional_id_pattern",
    )

    def __init__(
        self,
        state_filters: list[str] | None = None,
        producer_id_filters: list[int] | None = None,
        duration_filter: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> None:
        self.state_filters: list[str] = [] if state_filters is None else state_filters
        self.producer_id_filters: list[int] = (
            [] if producer_id_filters is None else producer_id_filters
        )
        self.duration_filter = duration_filter
        self.transactional_id_pattern = transactional_id_pattern


class TransactionState(Struct):
    __slots__ = ("transactional_id", "producer_id", "transaction_state")

    def __init__(
        self,
        transactional_id: str = "",
        producer_id: int = 0,
        transaction_state: str = "",
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.transaction_state = transaction_state


class ListTransactionsResponse(Struct):
    __slots__ = ("throttle_time_ms", "error_code", "unknown_state_filters", "transaction_states")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_state_filters: list[str] | None = None,
        transaction_states: list[TransactionState] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.unknown_state_filters: list[str] = (
            [] if unknown_state_filters is None else unknown_state_filters
        )
        self.transaction_states: list[TransactionState] = (
            [] if transaction_states is None else transaction_states
        )


API: Final = Api(
    ApiKey.LIST_TRANSACTIONS,
    ListTransactionsRequest,
    ListTransactionsResponse,
    (TransactionState,),
    min_version=0,
    max_version=2,
    flexible_from=0,
)
