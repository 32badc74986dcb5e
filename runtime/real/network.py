"""The real network of a server: TCP listeners for the data plane, gRPC for the control plane."""

from __future__ import annotations

import asyncio
import errno
import importlib
import logging
import pkgutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Final, NoReturn, cast
from urllib.parse import unquote

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

import stele.wire.v1
from runtime.real.fetching import fetch
from runtime.real.status_details import status_details
from runtime.real.tls_listener import RealServerTls
from runtime.real.tls_transport import RECEIVE_BYTES, TlsTransport
from stele.addresses import Address
from stele.real import RealConnector, set_no_delay
from stele.security.client_security import ClientSecurity
from stele.world import (
    AUTHORIZATION_KEY,
    CLIENT_ID_KEY,
    MAX_MESSAGE_BYTES,
    Connector,
    RpcCode,
    RpcError,
)
from world.network import (
    IdentityError,
    Listener,
    Peer,
    ServerTls,
    ServerTlsSettings,
    Service,
    StreamHandler,
    UnaryHandler,
)

logger = logging.getLogger(__name__)

STREAMS_MAX: Final = 1_000

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    # Two nodes on one port would each get half of the calls, without an error.
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # Later than any session timeout: fencing a silent broker is the controller's decision.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Clients ping every 10 s, with or without calls; the default would cut them off for it.
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # As for Kafka's connections. By default a peer that says nothing holds its handle for 120 s.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Per connection: each call under way holds its messages. Further calls wait at the client.
    ("grpc.max_concurrent_streams", STREAMS_MAX),
)

_STATUS = {
    RpcCode.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    RpcCode.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    RpcCode.UNIMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    RpcCode.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    RpcCode.CANCELLED: grpc.StatusCode.CANCELLED,
    RpcCode.INTERNAL: grpc.StatusCode.INTERNAL,
    RpcCode.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    RpcCode.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    RpcCode.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    RpcCode.RESOURCE_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RpcCode.FAILED_PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
    RpcCode.OUT_OF_RANGE: grpc.StatusCode.OUT_OF_RANGE,
}

# More than any system allows: it takes its own limit, net.core.somaxconn, as gRPC does by itself. A
# client that finds the queue full asks again after 1 s, then 3 s, and knows of nothing.
_BACKLOG = 65_535

# How often a health watcher's answer is compared with the node's state.
_HEALTH_POLL_S = 0.5


class RealNetwork(RealConnector):
    """Both planes, both directions."""

    def __init__(self, handshakes: Executor | None = None) -> None:
        """``handshakes``: where TLS handshakes run."""
        super().__init__()
        # A server that is garbage collected while it runs hangs the process: inside the collection
        # gRPC waits for calls that its closed event loop never delivers.
        self._serving: set[_GrpcListener] = set()
        # Two: a signature takes a core for up to a millisecond, and the loop needs one, too.
        # A thread is started when it is first used.
        self._handshakes = handshakes or ThreadPoolExecutor(2, "tls-handshake")

    def secured(self, security: ClientSecurity) -> Connector:
        return RealConnector(security)

    async def fetch(self, url: str, *, timeout_s: float) -> bytes:
        return await fetch(url, timeout_s)

    def server_tls(self, settings: ServerTlsSettings) -> ServerTls:
        return RealServerTls(settings, self._handshakes)

    async def listen(
        self,
        address: Address,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ServerTls | None = None,
    ) -> Listener:
        connections = _Connections()
        loop = asyncio.get_running_loop()
        made = factory if tls is None else _encrypted(factory, tls)
        try:
            server = await loop.create_server(
                lambda: _Accepted(made, connections),
                address.host,
                address.port,
                backlog=_BACKLOG,
            )
        except OSError as error:
            raise _bind_error(address, error) from None
        return _TcpListener(server, connections)

    async def serve(
        self,
        address: Address,
        service: Service,
        *,
        health: Mapping[str, bool] | None = None,
        tls: ServerTls | None = None,
    ) -> Listener:
        """See ``Network.serve``; ``health`` is read anew at every question, so it may change.

        Beside the service itself, the standard ``grpc.health.v1`` and reflection are served.
        """
        credentials = None if tls is None else _real(tls).grpc_credentials()
        server = grpc.aio.server(options=SERVER_OPTIONS)
        callers = _Callers(None if tls is None else _real(tls))
        server.add_generic_rpc_handlers((_GenericHandler(service, callers),))
        health_pb2_grpc.add_HealthServicer_to_server(_Health(health or {}), server)
        _enable_reflection(service, server)
        bound = 0
        refusal: OSError | None = None
        try:
            if credentials is None:
                bound = server.add_insecure_port(str(address))
            else:
                bound = server.add_secure_port(str(address), credentials)
        except RuntimeError as error:
            refusal = _bind_error(address, error)
        await _start(server)
        listener = _GrpcListener(server, bound, self._serving)
        if refusal is not None:
            # Started all the same, with no port: gRPC frees only what was started and stopped.
            await listener.close()
            raise refusal
        return listener

    async def stop_serving(self) -> None:
        """End at once all servers that ``serve`` began and nobody closed; before the loop ends."""
        await asyncio.gather(*(listener.close() for listener in list(self._serving)))
        self._handshakes.shutdown(wait=False)


async def _start(server: grpc.aio.Server) -> None:
    """Start a server completely or, if cancelled, not at all: a half started one cannot be
    stopped."""
    starting = asyncio.ensure_future(server.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await starting
        await server.stop(None)
        raise


def _bind_error(address: Address, error: Exception) -> OSError:
    number = error.errno if isinstance(error, OSError) else None
    if number in (None, errno.EADDRINUSE):
        return OSError(
            errno.EADDRINUSE,
            f"cannot listen on {address}: the port is in use by another process, "
            "or the address is not this machine's",
        )
    return OSError(number, f"cannot listen on {address}: {error.args[-1]}")


# ----------------------------------------------------------------------------- data plane


class _Connections:
    """The accepted connections of one listener that are still open."""

    def __init__(self) -> None:
        self._transports: list[asyncio.Transport] = []
        self._prune_at = 64

    def add(self, transport: asyncio.Transport) -> None:
        self._transports.append(transport)
        if len(self._transports) >= self._prune_at:
            self._transports = self.open()
            self._prune_at = max(64, 2 * len(self._transports))

    def open(self) -> list[asyncio.Transport]:
        return [transport for transport in self._transports if not transport.is_closing()]


class _Accepted(asyncio.Protocol):
    """Stands in until the connection is made, so that the listener knows its transport."""

    def __init__(
        self, factory: Callable[[], asyncio.BaseProtocol], connections: _Connections
    ) -> None:
        self._factory = factory
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self._connections.add(transport)
        try:
            set_no_delay(transport)
            protocol = self._factory()
        except BaseException:
            transport.abort()  # nobody else would ever close it
            raise
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


def _encrypted(
    factory: Callable[[], asyncio.BaseProtocol], tls: ServerTls
) -> Callable[[], asyncio.BaseProtocol]:
    """A factory whose protocols are behind TLS."""
    of_listener, received = _real(tls), bytearray(RECEIVE_BYTES)
    return lambda: TlsTransport(of_listener, factory(), received)


def _real(tls: ServerTls) -> RealServerTls:
    assert isinstance(tls, RealServerTls)  # `server_tls` made it
    return tls


class _TcpListener:
    def __init__(self, server: asyncio.Server, connections: _Connections) -> None:
        self._server = server
        self._connections = connections
        self._port: int = server.sockets[0].getsockname()[1]

    @property
    def port(self) -> int:
        return self._port

    async def close(self, *, grace_s: float = 0.0) -> None:
        self._server.close()
        try:
            await self._idle(grace_s)
        finally:
            for transport in self._connections.open():
                transport.abort()
        await self._server.wait_closed()

    async def _idle(self, grace_s: float) -> None:
        """Wait until the peers have closed every connection, for ``grace_s`` at most."""
        deadline = asyncio.get_running_loop().time() + grace_s
        while self._connections.open():
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                return
            await asyncio.sleep(min(left_s, 0.02))


# -------------------------------------------------------------------------- control plane


class _GrpcListener:
    def __init__(self, server: grpc.aio.Server, port: int, serving: set[_GrpcListener]) -> None:
        self._server = server
        self._port = port
        self._serving = serving  # has this one until it is stopped
        serving.add(self)

    @property
    def port(self) -> int:
        return self._port

    async def close(self, *, grace_s: float = 0.0) -> None:
        """Cancelled, it still stops, at once: gRPC itself would leave the server half stopped."""
        stopping = asyncio.ensure_future(self._server.stop(grace_s or None))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await self._server.stop(None)
            await stopping
            raise
        finally:
            if stopping.done():
                self._serving.discard(self)


class _Callers:
    """Who calls, by what gRPC knows of a connection."""

    def __init__(self, tls: RealServerTls | None) -> None:
        self._tls = tls

    def peer(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> Peer:
        """From gRPC's ``ipv4:127.0.0.1:5000``; in ``ipv6:%5B::1%5D:5000`` brackets are escaped.
        Raises RpcError if the certificate gives no identity."""
        _, _, place = unquote(context.peer()).partition(":")
        client_id: str | None = None
        authorization: str | None = None
        for key, value in context.invocation_metadata() or ():
            if key == CLIENT_ID_KEY:
                client_id = unquote(str(value))
            elif key == AUTHORIZATION_KEY:
                authorization = str(value)
        address = place.rpartition(":")[0].strip("[]")
        if self._tls is None:
            return Peer(address, client_id, authorization=authorization)
        shown = context.auth_context().get("x509_pem_cert")
        try:
            principal, node_ids = self._tls.identity_of_caller(shown[0] if shown else None)
        except IdentityError as error:
            raise RpcError(RpcCode.PERMISSION_DENIED, str(error)) from None
        return Peer(address, client_id, principal, node_ids, authorization)


class _GenericHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Routes full method names to a service's handlers, bytes in and bytes out."""

    def __init__(self, service: Service, callers: _Callers) -> None:
        self._methods = {
            name: grpc.unary_unary_rpc_method_handler(_unary_behaviour(name, handler, callers))
            for name, handler in service.unary.items()
        } | {
            name: grpc.stream_stream_rpc_method_handler(_stream_behaviour(name, handler, callers))
            for name, handler in service.streams.items()
        }

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._methods.get(details.method)


def _unary_behaviour(
    name: str, handler: UnaryHandler, callers: _Callers
) -> Callable[[bytes, grpc.aio.ServicerContext[bytes, bytes]], Awaitable[bytes]]:
    async def answer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            return await handler(request, callers.peer(context))
        except RpcError as error:
            await _abort(context, error)
        except Exception:
            logger.exception("%s failed on a request of %d bytes", name, len(request))
            await _abort(context, _INTERNAL_ERROR)

    return answer


def _stream_behaviour(
    name: str, handler: StreamHandler, callers: _Callers
) -> Callable[[AsyncIterator[bytes], grpc.aio.ServicerContext[bytes, bytes]], Awaitable[None]]:
    async def converse(
        _: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> None:
        stream = _ServerStream(context)
        try:
            await handler(stream, callers.peer(context))
        except RpcError as error:
            if not context.done():
                await _abort(context, error)
        except Exception:
            logger.exception("%s failed", name)
            await _abort(context, _INTERNAL_ERROR)

    return converse


_INTERNAL_ERROR = RpcError(RpcCode.INTERNAL, "internal error; see the node's log")


async def _abort(context: grpc.aio.ServicerContext[bytes, bytes], error: RpcError) -> NoReturn:
    status = _STATUS[error.code]
    trailers: tuple[tuple[str, bytes], ...] = ()
    if error.info is not None:
        details = status_details(status.value[0], error.detail, error.info)
        trailers = (("grpc-status-details-bin", details),)
    await context.abort(status, error.detail, trailers)
    raise AssertionError("abort always raises")


class _ServerStream:
    """The server's end of a stream. It ends for the client when the handler returns."""

    def __init__(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        self._context: Any = context
        self._sending = asyncio.Lock()  # gRPC takes one outstanding write per stream
        self._closed = asyncio.Event()
        self._receiver: asyncio.Task[Any] | None = None

    async def send(self, message: bytes) -> None:
        async with self._sending:
            if self._closed.is_set() or self._context.done():
                raise RpcError(RpcCode.CANCELLED, "the stream has ended")
            try:
                await self._context.write(message)
            except (grpc.aio.BaseError, grpc.RpcError, asyncio.InvalidStateError) as error:
                raise RpcError(RpcCode.UNAVAILABLE, str(error)) from None
            except asyncio.CancelledError:
                if not self._client_has_gone():
                    raise
                raise RpcError(RpcCode.CANCELLED, "the client has gone") from None

    async def receive(self) -> bytes | None:
        if self._closed.is_set():
            return None
        self._receiver = asyncio.current_task()
        try:
            message = await self._context.read()
        except (grpc.aio.BaseError, grpc.RpcError, asyncio.InvalidStateError) as error:
            raise RpcError(RpcCode.UNAVAILABLE, str(error)) from None
        except asyncio.CancelledError:
            if self._closed.is_set() and _was_last_cancellation(self._receiver):
                return None
            if not self._client_has_gone():
                raise
            raise RpcError(RpcCode.CANCELLED, "the client has gone") from None
        finally:
            self._receiver = None
        return None if message is grpc.aio.EOF else bytes(message)

    async def close(self) -> None:
        """Wakes a pending ``receive`` with None; the handler is then to return."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._receiver is not None and self._receiver is not asyncio.current_task():
            self._receiver.cancel()

    def _client_has_gone(self) -> bool:
        """Whether the client's end of the call cancels this task: gRPC tells a handler that way."""
        return bool(self._context.cancelled()) and _was_last_cancellation(asyncio.current_task())


def _was_last_cancellation(task: asyncio.Task[Any] | None) -> bool:
    """Take back one request to cancel; whether none is left."""
    return task is not None and task.uncancel() == 0


class _Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """``grpc.health.v1``. The service "" is the node: serving when all of its services are."""

    def __init__(self, serving: Mapping[str, bool]) -> None:
        self._serving = serving

    def _status(self, service: str) -> int | None:
        if service in self._serving:
            serving = self._serving[service]
        elif service == "":
            serving = all(self._serving.values())
        else:
            return None
        statuses = health_pb2.HealthCheckResponse
        return int(statuses.SERVING if serving else statuses.NOT_SERVING)

    async def Check(  # noqa: N802
        self, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Any:
        status = self._status(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(  # noqa: N802
        self, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        last: int | None = None
        while not context.done():
            status = self._status(request.service)
            if status is None:
                status = int(health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            if status != last:
                last = status
                yield health_pb2.HealthCheckResponse(status=status)
            await asyncio.sleep(_HEALTH_POLL_S)


def _enable_reflection(service: Service, server: grpc.aio.Server) -> None:
    for module in pkgutil.iter_modules(stele.wire.v1.__path__):  # fills the descriptor pool
        importlib.import_module(f"stele.wire.v1.{module.name}")
    names = {method.split("/")[1] for method in (*service.unary, *service.streams)}
    names |= {"grpc.health.v1.Health", reflection.SERVICE_NAME}
    reflection.enable_server_reflection(sorted(names), server)
