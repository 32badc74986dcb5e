"""The client's end of a Kafka connection. Requests are pipelined and answered in their order.

Followers use it to fetch, and clients to bootstrap, or for everything (``kafka_plane``). It works
over any byte transport that a ``stele.world.Connector`` opens.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Protocol, TypeVar, cast

from stele.addresses import Address, address_text
from stele.cluster.kafka_login import log_in
from stele.errors import ApiError, ErrorCode
from stele.security.client_security import SaslCredentials
from stele.version import VERSION
from stele.wire import kafka
from stele.wire.kafka.frames import FrameReader
from stele.wire.kafka.messages import api_versions
from stele.world import Buffer, Connector

logger = logging.getLogger(__name__)

DEFAULT_MAX_RESPONSE_BYTES = 128 * 1024 * 1024
SOFTWARE_NAME = "stele"
"""The software of our clients, as they name it in ApiVersions. Stele's brokers send the fields that
Kafka lacks to such clients only."""

STELES_FEATURE = "stele.metadata.version"
"""A feature that only Stele's clusters have."""

LOGIN_TIMEOUT_S = 30.0
"""How long each step of a login may take, unless the opener of the connection is less patient."""

_SESSION_SHARE = 0.85
"""After this share of its session a client begins to prove again who it is, as in Kafka."""

Request = TypeVar("Request", bound=kafka.Struct)
Response = TypeVar("Response", bound=kafka.Struct)
AnswerT_contra = TypeVar("AnswerT_contra", contravariant=True)


class PendingAnswer(Protocol[AnswerT_contra]):
    """Gets the answer of one request, or the error instead of it: a future, or something that hears
    of it at once."""

    def done(self) -> bool:
        """Whether it needs no answer any more."""
        ...

    def set_result(self, result: AnswerT_contra, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


class ConnectionLostError(ApiError):
    """The connection ended before the answer. It is unknown whether the request took effect."""

    def __init__(self, message: str, reason: Exception | None = None) -> None:
        """``reason``: the transport's, if it has one."""
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)
        self.reason = reason


class _Pending:
    """A request that was sent and not answered yet."""

    __slots__ = ("answer", "api", "correlation_id", "deadline", "timeout_s", "version")

    def __init__(
        self,
        api: kafka.Api[Any, Any],
        version: int,
        correlation_id: int,
        answer: PendingAnswer[Any],
        timeout_s: float,
        deadline: float,
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.answer = answer  # may be cancelled: then the answer is skipped
        self.timeout_s = timeout_s
        self.deadline = deadline  # in the event loop's time


class _Held:
    """A request that leaves when the login that is under way has ended."""

    __slots__ = ("buffers", "pending")

    def __init__(self, pending: _Pending | None, buffers: list[Buffer]) -> None:
        self.pending = pending  # None: it gets no answer
        self.buffers = buffers


class KafkaConnection(asyncio.BufferedProtocol):
    """An open connection to one broker. It does not reconnect: open another one.

    >>> connection = await KafkaConnection.open(connector, "localhost", 9092, "me")
    >>> await connection.negotiate(timeout_s=5)
    >>> version = connection.version_of(fetch.API)
    >>> response = await connection.request(fetch.API, version, fetch.FetchRequest(), timeout_s=5)
    """

    def __init__(
        self,
        name: str,
        client_id: str | None,
        *,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
    ) -> None:
        self.name = name  # host:port, for error messages
        self.client_id = client_id
        self.broker_versions: dict[int, tuple[int, int]] = {}
        """By API key: the (least, greatest) version of the broker. Empty before ``negotiate``."""
        self.finalized_features: dict[str, int] = {}
        """The levels of the cluster's features, as of ``negotiate``."""
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(max_response_bytes)
        self._next_correlation_id = 0
        self._pending: deque[_Pending] = deque()  # in the order in which they were sent
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._reason = "it is closed"  # why there is no transport
        self._has_tls = False  # for messages
        self._lost_by: Exception | None = None  # the transport's reason
        self._is_full = False  # bytes wait in memory until the peer takes those before them
        self._on_room: list[asyncio.Future[None]] = []  # the waiting callers
        # Set to the earliest deadline or before it. It need not be exact, as nearly all requests
        # are answered before.
        self._timer: asyncio.TimerHandle | None = None
        # Requests that came since a login is due on the open connection; None: none is.
        self._held: list[_Held] | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None  # done when no request is unanswered

    @classmethod
    async def open(
        cls,
        connector: Connector,
        host: str,
        port: int,
        client_id: str | None = None,
        *,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
    ) -> KafkaConnection:
        """Connect, and prove who this client is if the connector's security has SASL. Raises
        OSError as the connector does. With SASL it raises LoginError if the broker refuses the
        login, and ApiError as ``request`` does."""
        connection = cls(address_text(host, port), client_id, max_response_bytes=max_response_bytes)
        connection._has_tls = connector.security.protocol.has_tls
        transport = await connector.connect(Address(host, port), lambda: connection)
        credentials = connector.security.sasl
        if credentials is not None and not transport.get_extra_info("is_in_process", False):
            try:
                await connection.log_in(credentials)
            except BaseException:
                connection.close()
                raise
        return connection

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer."""
        return len(self._pending)

    def close(self) -> None:
        """Close the connection. Unanswered requests fail with ConnectionLostError. Idempotent."""
        self._abandon("it was closed on this side")

    async def wait_closed(self) -> None:
        """Wait until the connection is closed or lost."""
        await asyncio.shield(self._lost)

    # -------------------------------------------------------------------------- requests

    async def request(
        self,
        api: kafka.Api[Request, Response],
        version: int,
        message: Request,
        *,
        timeout_s: float,
    ) -> Response:
        """Send a request and return its answer. Raises what ``submit`` and its future raise."""
        return await self.submit(api, version, message, timeout_s=timeout_s)

    def submit(
        self,
        api: kafka.Api[Request, Response],
        version: int,
        message: Request,
        *,
        timeout_s: float,
    ) -> asyncio.Future[Response]:
        """Send a request. The future gets its answer. Requests leave in the order of the calls.

        Raises ConnectionLostError. The future may raise ConnectionLostError, MalformedMessageError
        for an answer that cannot be decoded, and ApiError REQUEST_TIMED_OUT. A request that is not
        answered in time closes the connection, since all later answers would wait behind it.
        Cancelling the future only skips the answer. Bytes that the peer does not take yet are kept
        in memory. Callers bound them by awaiting their answers.
        """
        answer: asyncio.Future[Response] = self._loop.create_future()
        self.submit_for(answer, api, version, message, timeout_s=timeout_s)
        return answer

    def submit_for(
        self,
        answer: PendingAnswer[Response],
        api: kafka.Api[Request, Response],
        version: int,
        message: Request,
        *,
        timeout_s: float,
    ) -> None:
        """As ``submit``, for an outcome of the caller's."""
        if self._transport is None or self._transport.is_closing():
            raise self._loss()
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        buffers = kafka.encode_request(api, version, correlation_id, self.client_id, message)
        deadline = self._loop.time() + timeout_s
        pending = _Pending(api, version, correlation_id, answer, timeout_s, deadline)
        if self._held is not None and api.key not in _OF_A_LOGIN:
            self._held.append(_Held(pending, buffers))
            return
        self._pending.append(pending)
        self._arm(deadline)
        self._transport.writelines(buffers)

    def post(
        self, api: kafka.Api[Request, Response], version: int, message: Request
    ) -> asyncio.Future[None]:
        """Send a request that gets no answer (acks=0). The future is done when the system has taken
        all bytes. Then ``close`` does not lose them, and a waiter does not pile up bytes in memory.

        Raises ConnectionLostError. The future may raise it, too.
        """
        if self._transport is None or self._transport.is_closing():
            raise self._loss()
        self._transport.set_write_buffer_limits(high=0)  # it is full until all are taken
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        buffers = kafka.encode_request(api, version, correlation_id, self.client_id, message)
        if self._held is not None:
            self._held.append(_Held(None, buffers))
        else:
            self._transport.writelines(buffers)
        room: asyncio.Future[None] = self._loop.create_future()
        if self._is_full:
            self._on_room.append(room)
        else:
            room.set_result(None)
        return room

    def _arm(self, deadline: float) -> None:
        """Set the timer for this deadline. If it is early, it finds nothing overdue and is set
        again."""
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._loop.time()
        awaited = [pending for pending in self._pending if not pending.answer.done()]
        overdue = [pending for pending in awaited if pending.deadline <= now]
        for pending in overdue:
            reason = f"{pending.api.key.name} was not answered within {pending.timeout_s:g} s"
            error = ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{self.name}: {reason}")
            pending.answer.set_exception(error)
        if overdue:
            self._abandon(reason)
        elif awaited:
            self._arm(min(pending.deadline for pending in awaited))

    async def negotiate(self, *, timeout_s: float) -> None:
        """Fill ``broker_versions`` by an ApiVersions request. Raises as ``request`` does."""
        api = api_versions.API
        message = api_versions.ApiVersionsRequest(SOFTWARE_NAME, VERSION)
        version = api.max_version
        response = await self.request(api, version, message, timeout_s=timeout_s)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            # An older broker answers in version 0, and may name its range (KIP-511).
            ranges = {each.api_key: each.max_version for each in response.api_keys}
            version = min(version - 1, ranges.get(api.key, 0))
            response = await self.request(api, max(version, 0), message, timeout_s=timeout_s)
        if response.error_code != ErrorCode.NONE:
            raise ApiError(_error_code(response.error_code), f"{self.name}: ApiVersions")
        self.broker_versions = {
            each.api_key: (each.min_version, each.max_version) for each in response.api_keys
        }
        self.finalized_features = {
            each.name: each.max_version_level for each in response.finalized_features
        }

    # ----------------------------------------------------------------------------- login

    async def log_in(self, credentials: SaslCredentials) -> None:
        """Prove who this client is. If the broker says that this counts for some time only, the
        connection proves it again before the end of that. Raises LoginError, and ApiError as
        ``request`` does."""

        async def ask(api: kafka.Api[Any, Any], version: int, message: kafka.Struct) -> Any:
            return await self.request(api, version, message, timeout_s=LOGIN_TIMEOUT_S)

        lifetime_s = await log_in(ask, self.name, credentials, self._has_tls)
        if lifetime_s is not None and not self.is_closed:
            self._renewal = self._loop.call_later(
                lifetime_s * _SESSION_SHARE, self._begin_renewal, credentials
            )

    def _begin_renewal(self, credentials: SaslCredentials) -> None:
        self._renewal = None
        self._held = []
        self._renewing = self._loop.create_task(self._renew(credentials))

    async def _renew(self, credentials: SaslCredentials) -> None:
        """Log in again. Brokers of Kafka take no other request meanwhile, so those that were sent
        are answered first, and those that come wait."""
        try:
            if self._pending:
                self._drained = self._loop.create_future()
                await self._drained
            await self.log_in(credentials)
        except ApiError as error:
            if not self.is_closed:
                logger.warning("closing the connection to %s: %s", self.name, error.message)
            self._abandon(error.message)
        else:
            self._release()

    def _release(self) -> None:
        """Send what was held back."""
        held, self._held = self._held or [], None
        if self._transport is None:
            return
        for each in held:
            if each.pending is not None:
                self._pending.append(each.pending)
                self._arm(each.pending.deadline)
            self._transport.writelines(each.buffers)

    def version_of(self, api: kafka.Api[Any, Any], at_most: int | None = None) -> int:
        """The newest version that both sides support. Raises ApiError UNSUPPORTED_VERSION if there
        is none."""
        first, last = self.broker_versions.get(api.key, (0, -1))
        version = min(last, api.max_version if at_most is None else min(at_most, api.max_version))
        if version < max(first, api.min_version):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.name} speaks {api.key.name} {first} to {last}, "
                f"this program {api.min_version} to {api.max_version}",
            )
        return version

    # ------------------------------------------------------------------ asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Uvloop's transports do not inherit from it.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._reason = "the connection was lost" + (f": {exc}" if exc else "")
            self._lost_by = exc
        self._transport = None
        self._fail_pending()
        if not self._lost.done():
            self._lost.set_result(None)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        waiting, self._on_room = self._on_room, []
        for room in waiting:
            if not room.done():
                room.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.received(nbytes)
        try:
            while (frame := self._reader.next_frame()) is not None:
                self._take(frame)
        except kafka.MalformedMessageError as error:
            logger.warning("closing the connection to %s: %s", self.name, error.message)
            self._abandon(error.message)

    # --------------------------------------------------------------------------- answers

    def _take(self, frame: bytearray) -> None:
        correlation_id = kafka.read_correlation_id(frame)
        if not self._pending:
            raise kafka.MalformedMessageError(f"an answer {correlation_id} without a request")
        pending = self._pending.popleft()
        if self._drained is not None and not self._pending:
            self._note_drained()
        if correlation_id != pending.correlation_id:
            self._pending.appendleft(pending)
            raise kafka.MalformedMessageError(
                f"an answer {correlation_id} instead of {pending.correlation_id}"
            )
        if pending.answer.done():  # no caller waits for it any more
            return
        try:
            response = kafka.decode_response(pending.api, pending.version, frame)
        except kafka.MalformedMessageError as error:
            pending.answer.set_exception(error)
            raise
        pending.answer.set_result(response)

    def _abandon(self, reason: str) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            self._reason = reason
            transport.abort()
        self._fail_pending()

    def _loss(self) -> ConnectionLostError:
        return ConnectionLostError(f"{self.name}: {self._reason}", self._lost_by)

    def _note_drained(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _fail_pending(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        held, self._held = self._held or [], None
        self._pending.extend(each.pending for each in held if each.pending is not None)
        self._note_drained()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            answer = self._pending.popleft().answer
            if not answer.done():
                answer.set_exception(self._loss())
        waiting, self._on_room = self._on_room, []
        for room in waiting:
            if not room.done():
                room.set_exception(self._loss())


_OF_A_LOGIN = (kafka.ApiKey.SASL_HANDSHAKE, kafka.ApiKey.SASL_AUTHENTICATE)


def _error_code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
