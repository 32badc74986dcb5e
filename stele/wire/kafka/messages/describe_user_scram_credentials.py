"""DescribeUserScramCredentials, API key 50. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class UserName(Struct):
    __slots__ = ("name",)

    def __init__(self, name: str = "") -> None:
        self.name = name


class DescribeUserScramCredentialsRequest(Struct):
    __slots__ = ("users",)

    def __init__(self, users: list[UserName] | None = None) -> None:
        self.users = users


class CredentialInfo(Struct):
    __slots__ = ("mechanism", "iterations")

    def __init__(self, mechanism: int = 0, iterations: int = 0) -> None:
        self.mechanism = mechanism
        self.iterations = iterations


class DescribeUserScramCredentialsResult(Struct):
    __slots__ = ("user", "error_code", "error_message", "credential_infos")

    def __init__(
        self,
        user: str = "",
        error_code: int = 0,
        error_message: str | None = None,
        credential_infos: list[CredentialInfo] | None = None,
    ) -> None:
        self.user = user
        self.error_code = error_code
        self.error_message = error_message
        self.credential_infos: list[CredentialInfo] = (
            [] if credential_infos is None else credential_infos
        )


class DescribeUserScramCredentialsResponse(Struct):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "results")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        results: list[DescribeUserScramCredentialsResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.results: list[DescribeUserScramCredentialsResult] = [] if results is None else results


API: Final = Api(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    (UserName, CredentialInfo, DescribeUserScramCredentialsResult),
    min_version=0,
    max_version=0,
    flexible_from=0,
)
