"""The Kafka connections to one broker, for questions."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stele.addresses import address_text
from stele.cluster.kafka_connection import ConnectionLostError, KafkaConnection
from stele.cluster.kafka_login import LoginError
from stele.cluster.messages import BrokerAddress
from stele.errors import ApiError, AuthenticationError, ErrorCode, TlsError
from stele.security.tls_refusals import TlsRefusedError, tls_failure
from stele.wire import kafka
from stele.world import Connector, RpcCode, RpcError

Request = TypeVar("Request", bound=kafka.Struct)
Response = TypeVar("Response", bound=kafka.Struct)
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class KafkaLink:
    """Connections are opened when they are needed, and again after a loss.

    A connection answers in the order of its requests. So questions whose answer waits for other
    clients (``waits``) have a connection of their own, and delay no heartbeat.
    """

    def __init__(
        self,
        address: BrokerAddress,
        connector: Connector,
        client_id: str,
        open_s: float,
        on_open: Callable[[KafkaConnection], None] = lambda connection: None,
    ) -> None:
        """``open_s``: how long a connection may take to open. ``on_open`` is called with each."""
        self._on_open = on_open
        self.address = address
        self._connector = connector
        self._client_id = client_id
        self._open_s = open_s
        self._lanes = (_Lane(), _Lane())
        self._is_closed = False

    async def ask(
        self,
        api: kafka.Api[Request, Response],
        make: Callable[[int], Request],
        *,
        timeout_s: float,
        at_most: int | None = None,
        waits: bool = False,
    ) -> Response:
        """Ask once, in the newest version that both sides speak, which ``make`` is given.

        Raises RpcError, ApiError UNSUPPORTED_VERSION if there is no common version up to
        ``at_most``, and what ``make`` raises.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        connection = await self._connected(self._lanes[waits], timeout_s)
        version = connection.version_of(api, at_most)
        message = make(version)
        left_s = max(deadline - loop.time(), 0.001)
        try:
            return await connection.request(api, version, message, timeout_s=left_s)
        except (ConnectionLostError, ApiError) as error:
            raise unanswered(error) from error
        except asyncio.CancelledError:
            if waits:  # later answers would wait for this one, which may be long in coming
                connection.close()
            raise

    async def features(self, *, timeout_s: float) -> Mapping[str, int]:
        """The levels of the features that the cluster has finalized. Raises RpcError."""
        return (await self._connected(self._lanes[0], timeout_s)).finalized_features

    async def open(self) -> KafkaConnection:
        """Another connection, which belongs to the caller. Raises RpcError."""
        try:
            async with asyncio.timeout(self._open_s):
                return await self._open()
        except TimeoutError:
            raise self._silent(self._open_s) from None

    async def close(self) -> None:
        self._is_closed = True
        for lane in self._lanes:
            if lane.connection is not None:
                lane.connection.close()

    async def _connected(self, lane: _Lane, timeout_s: float) -> KafkaConnection:
        timeout_s = min(timeout_s, self._open_s)
        try:
            async with asyncio.timeout(timeout_s), lane.opening:
                if lane.connection is None or lane.connection.is_closed:
                    lane.connection = await self._open()
                return lane.connection
        except TimeoutError:
            raise self._silent(timeout_s) from None

    async def _open(self) -> KafkaConnection:
        host, port = self.address[:2]
        self._check_open()
        try:
            connection = await KafkaConnection.open(self._connector, host, port, self._client_id)
        except TlsRefusedError as error:
            raise TlsRefusedRpcError(self.address, str(error)) from error
        except OSError as error:
            raise RpcError(RpcCode.UNAVAILABLE, f"{address_text(host, port)}: {error}") from error
        except ApiError as error:  # of a login
            raise self._unopened(error) from error
        try:
            await connection.negotiate(timeout_s=self._open_s)
            self._check_open()
        except BaseException as error:
            connection.close()
            if isinstance(error, ApiError):
                raise self._unopened(error) from error
            raise
        self._on_open(connection)
        return connection

    def _unopened(self, error: ApiError) -> RpcError:
        """In TLS 1.3 a client hears only after its handshake that the broker refuses it."""
        reason = error.reason if isinstance(error, ConnectionLostError) else None
        if isinstance(reason, ssl.SSLError):
            failure = tls_failure(reason)
            if isinstance(failure, TlsRefusedError):
                return TlsRefusedRpcError(self.address, str(failure))
        return unanswered(error)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RpcError(RpcCode.CANCELLED, "the client is closed")

    def _silent(self, timeout_s: float) -> RpcError:
        host, port = self.address[:2]
        return RpcError(
            RpcCode.DEADLINE_EXCEEDED,
            f"{address_text(host, port)} did not answer within {timeout_s:g} s",
        )


class _Lane:
    __slots__ = ("connection", "opening")

    def __init__(self) -> None:
        self.connection: KafkaConnection | None = None
        self.opening = asyncio.Lock()  # all questions share one connection


@dataclass(frozen=True, slots=True)
class Question(Generic[AnswerT_co]):
    """``ask`` takes the link, and the seconds until the question is given up. Raises RpcError,
    ApiError UNSUPPORTED_VERSION."""

    what: str
    """Its name in messages."""
    ask: Callable[[KafkaLink, float], Awaitable[AnswerT_co]]


def question(
    api: kafka.Api[Request, Response],
    make: Callable[[int], Request],
    *,
    at_most: int | None = None,
    waits: bool = False,
) -> Question[Response]:
    """As ``KafkaLink.ask`` asks it."""

    async def ask(link: KafkaLink, timeout_s: float) -> Response:
        return await link.ask(api, make, timeout_s=timeout_s, at_most=at_most, waits=waits)

    return Question(api.key.name, ask)


class TlsRefusedRpcError(RpcError):
    """The failure of a question to a broker with which TLS does not work."""

    def __init__(self, address: BrokerAddress, reason: str) -> None:
        self.refusal = TlsError(f"cannot connect to {address_text(*address[:2])}: {reason}")
        super().__init__(RpcCode.UNAUTHENTICATED, self.refusal.message)


def refusal_of(error: RpcError) -> AuthenticationError | None:
    """Why the broker and this client do not accept each other; None if that is not the failure."""
    if isinstance(error, TlsRefusedRpcError):
        return error.refusal
    if error.code is RpcCode.UNAUTHENTICATED:
        return LoginError(ErrorCode.SASL_AUTHENTICATION_FAILED, error.detail)
    return None


def unanswered(error: ApiError) -> RpcError:
    """The failure of a connection, as the failure of a question."""
    if error.code is ErrorCode.REQUEST_TIMED_OUT:
        return RpcError(RpcCode.DEADLINE_EXCEEDED, error.message)
    if isinstance(error, LoginError):
        return RpcError(RpcCode.UNAUTHENTICATED, error.message)
    if isinstance(error, ConnectionLostError):
        return RpcError(RpcCode.UNAVAILABLE, error.message)
    return RpcError(RpcCode.INTERNAL, error.message)


def needs(
    api: kafka.Api[Request, Any], at_least: int, message: Request
) -> Callable[[int], Request]:
    """Makes the same message for all versions from ``at_least`` on. Older ones cannot express
    it."""

    def make(version: int) -> Request:
        if version < at_least:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the brokers speak {api.key.name} up to version {version}, not {at_least}",
            )
        return message

    return make
