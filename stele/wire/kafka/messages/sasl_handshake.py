"""SaslHandshake, API key 17. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class SaslHandshakeRequest(Struct):
    __slots__ = ("mechanism",)

    def __init__(self, mechanism: str = "") -> None:
        self.mechanism = mechanism


class SaslHandshakeResponse(Struct):
    __slots__ = ("error_code", "mechanisms")

    def __init__(self, error_code: int = 0, mechanisms: list[str] | None = None) -> None:
        self.error_code = error_code
        self.mechanisms: list[str] = [] if mechanisms is None else mechanisms


API: Final = Api(
    ApiKey.SASL_HANDSHAKE,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    (),
    min_version=0,
    max_version=1,
    flexible_from=None,
)
