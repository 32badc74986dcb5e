"""UnregisterBroker, API key 64. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class UnregisterBrokerRequest(Struct):
    __slots__ = ("broker_id",)

    def __init__(self, broker_id: int = 0) -> None:
        self.broker_id = broker_id


class UnregisterBrokerResponse(Struct):
    __slots__ = ("throttle_time_ms", "error_code", "error_message")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message


API: Final = Api(
    ApiKey.UNREGISTER_BROKER,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    (),
    min_version=0,
    max_version=0,
    flexible_from=0,
)
