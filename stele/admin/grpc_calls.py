"""How an administrator's requests reach brokers: over gRPC, which is found over Kafka's protocol.

``bootstrap_servers`` are Kafka ports. Any broker tells there where the gRPC port of each broker is,
on the listener of the same name. Leaders and offsets are asked for over Kafka's protocol, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from google.protobuf.message import DecodeError

from stele.addresses import Address, address_text
from stele.cluster.kafka_link import (
    KafkaLink,
    Question,
    TlsRefusedRpcError,
    needs,
    question,
)
from stele.cluster.kafka_plane import KafkaPlane
from stele.cluster.messages import BrokerAddress, ClusterNews, error_code
from stele.errors import ApiError, ConfigError, ErrorCode, SteleError
from stele.security.tls_refusals import grpc_tls_failure
from stele.wire.kafka.messages import describe_cluster
from stele.world import Channel, Connector, RpcCode, RpcError

GRPC_ENDPOINTS: Final = 3
"""The endpoint type of a DescribeCluster to which Stele's brokers answer with gRPC addresses."""

_ENDPOINT_TYPES: Final = 1
"""The first version of DescribeCluster with endpoint types."""

_NO_GRPC: Final = frozenset({ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, ErrorCode.UNSUPPORTED_VERSION})

AnswerT = TypeVar("AnswerT")


class Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802 - protobuf's name


class AdminLink(KafkaLink):
    """The way to one broker over both protocols. The channel is opened when it is needed."""

    def __init__(
        self, address: BrokerAddress, connector: Connector, client_id: str, open_s: float
    ) -> None:
        super().__init__(address, connector, client_id, open_s)
        self._channel: Channel | None = None

    @property
    def channel(self) -> Channel:
        """Raises RpcError if the broker has no gRPC address."""
        if self._channel is None:
            if self.address.grpc is None:
                raise RpcError(
                    RpcCode.UNAVAILABLE,
                    f"{address_text(self.address.host, self.address.port)} has no gRPC port on "
                    "this listener: see grpc.listeners",
                )
            self._channel = self._connector.channel(Address(*self.address.grpc), self._client_id)
        return self._channel

    async def close(self) -> None:
        await super().close()
        if self._channel is not None:
            await self._channel.close()


class AdminPlane(KafkaPlane):
    """Kafka's protocol, with the gRPC address of each broker."""

    def link(self, address: BrokerAddress) -> AdminLink:
        return AdminLink(address, self._connector, self._client_id, self._open_s)

    def metadata(self, topics: Sequence[str] | None) -> Question[ClusterNews]:
        """Raises ApiError UNSUPPORTED_VERSION if the brokers do not speak gRPC."""
        asked = super().metadata(topics)

        async def ask(link: KafkaLink, timeout_s: float) -> ClusterNews:
            news = await asked.ask(link, timeout_s)
            addresses = await _GRPC_ADDRESSES.ask(link, timeout_s)
            news.brokers = {
                broker_id: each._replace(grpc=addresses.get(broker_id))
                for broker_id, each in news.brokers.items()
            }
            return news

        return Question(asked.what, ask)


def call(method: str, request: Message, parse: Callable[[bytes], AnswerT]) -> Question[AnswerT]:
    """A unary call. ``method`` is ``/stele.v1.Service/Method``."""

    async def ask(link: KafkaLink, timeout_s: float) -> AnswerT:
        if not isinstance(link, AdminLink):
            raise ConfigError(f"only an Admin can ask for {method}")
        try:
            told = await link.channel.call(method, request.SerializeToString(), timeout_s=timeout_s)
        except RpcError as error:
            if error.code is not RpcCode.PERMISSION_DENIED:
                worded = _in_words(error, link.address)
                if worded is None:
                    raise
                raise worded from error
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # no other broker serves it either
            raise ApiError(denied, error.detail) from error
        try:
            return parse(told)
        except DecodeError as error:
            raise RpcError(RpcCode.INTERNAL, f"an answer that cannot be read: {error}") from error

    return Question(method, ask)


def unknown_at(broker_id: int, method: str, error: RpcError) -> ApiError | None:
    """The refusal of a broker that does not know the method; None for any other failure. Only this
    broker can answer, so that asking another one, or again, does not help."""
    if error.code is not RpcCode.UNIMPLEMENTED:
        return None
    return ApiError(
        ErrorCode.UNSUPPORTED_VERSION, f"broker {broker_id} is older and does not know {method}"
    )


def _in_words(error: RpcError, address: BrokerAddress) -> ConfigError | RpcError | None:
    """A failure of TLS as it is raised for Kafka's protocol; None for any other."""
    if isinstance(error.__cause__, SteleError):
        return ConfigError(error.detail)  # of the client's own stores
    if address.grpc is None:
        return None
    at = BrokerAddress(*address.grpc)
    said = grpc_tls_failure(error.detail, at.host)
    return None if said is None else TlsRefusedRpcError(at, said)


async def _grpc_addresses(link: KafkaLink, timeout_s: float) -> dict[int, tuple[str, int]]:
    request = describe_cluster.DescribeClusterRequest(endpoint_type=GRPC_ENDPOINTS)
    asked = question(describe_cluster.API, needs(describe_cluster.API, _ENDPOINT_TYPES, request))
    try:
        told = await asked.ask(link, timeout_s)
        code = error_code(told.error_code)
        if code is not ErrorCode.NONE:
            raise ApiError(code, told.error_message or "")
    except ApiError as error:
        if error.code in _NO_GRPC:
            raise ApiError(
                error.code, "its brokers do not speak gRPC, which administration needs"
            ) from error
        raise
    return {each.broker_id: (each.host, each.port) for each in told.brokers}


_GRPC_ADDRESSES: Final = Question("DescribeCluster", _grpc_addresses)
