"""The server's end of the control plane: gRPC.

Nothing of a request is read before its caller is admitted (``world.network.Service``). So a peer
that has not logged in, or that may not call a method, takes the memory of a call and of the unread
window of its stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn
from urllib.parse import unquote

import grpc
import grpc.aio

from runtime.grpc.requests import ADMIN_BYTES_MAX
from runtime.real.binding import bind_error
from runtime.real.grpc_standard import standard_service
from runtime.real.status_details import status_details
from runtime.real.tls_listener import RealServerTls
from stele.addresses import Address
from stele.world import (
    AUTHORIZATION_KEY,
    CLIENT_ID_KEY,
    MAX_MESSAGE_BYTES,
    RpcCode,
    RpcError,
)
from world.network import IdentityError, Peer, Service

logger = logging.getLogger(__name__)

STREAMS_MAX: Final = 1_000

RECEIVE_BYTES_MAX: Final = ADMIN_BYTES_MAX + (1 << 20)
"""The largest message that is received at all. Handlers say more kindly what is too large."""

STREAM_WINDOW_BYTES: Final = 256 * 1024
"""What is received of a call that nobody reads."""

IDLE_MS: Final = 600_000
"""A connection without calls is closed after this time. Its client opens another one when it needs
it."""

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    # Two nodes on one port would each get half of the calls, without an error.
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    # Otherwise gRPC makes the window of a stream as large as the network is fast. Then 16 MiB and
    # more of each call would be received before its caller is admitted. Now it is 256 KiB, and the
    # size of a message while that is read. runtime/README.md says what this costs far clients.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", STREAM_WINDOW_BYTES),
    ("grpc.max_connection_idle_ms", IDLE_MS),
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


async def serve_grpc(
    address: Address,
    service: Service,
    health: Mapping[str, bool],
    tls: RealServerTls | None,
    max_connections: int | None,
) -> GrpcListener:
    """As ``Network.serve``, with the standard services."""
    credentials = None if tls is None else tls.grpc_credentials()
    options = SERVER_OPTIONS
    if max_connections is not None:
        options = (*options, ("grpc.max_allowed_incoming_connections", max_connections))
    server = grpc.aio.server(options=options)
    served = standard_service(service, health)
    served.include(service)
    server.add_generic_rpc_handlers((_GenericHandler(served, _Callers(tls)),))
    bound = 0
    refusal: OSError | None = None
    try:
        if credentials is None:
            bound = server.add_insecure_port(str(address))
        else:
            bound = server.add_secure_port(str(address), credentials)
    except RuntimeError as error:
        refusal = bind_error(address, error)
    await _start(server)
    listener = GrpcListener(server, bound)
    if refusal is not None:
        # Started all the same, with no port: gRPC frees only what was started and stopped.
        await listener.close()
        raise refusal
    return listener


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


def _ignore(_: GrpcListener) -> None:
    pass


class GrpcListener:
    """A port that serves gRPC."""

    def __init__(self, server: grpc.aio.Server, port: int) -> None:
        self._server = server
        self._port = port
        self.on_closed: Callable[[GrpcListener], None] = _ignore

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
                self.on_closed(self)


class _Callers:
    """The callers, by what gRPC knows of a connection."""

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
    """Routes full method names to a service's handlers, bytes in and bytes out.

    A unary method is served as one whose client sends a stream: gRPC reads the message of any other
    before it asks anybody. What is not read takes at most the window of its stream.
    """

    def __init__(self, service: Service, callers: _Callers) -> None:
        self._methods = {
            name: grpc.stream_unary_rpc_method_handler(_unary_behaviour(name, service, callers))
            for name in (*service.unary, *service.unread)
        } | {
            name: grpc.stream_stream_rpc_method_handler(_stream_behaviour(name, service, callers))
            for name in service.streams
        }

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._methods.get(details.method)


def _unary_behaviour(
    name: str, service: Service, callers: _Callers
) -> Callable[[AsyncIterator[bytes], grpc.aio.ServicerContext[bytes, bytes]], Awaitable[bytes]]:
    handler, unread = service.unary.get(name), service.unread.get(name)

    async def answer(
        _: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> bytes:
        try:
            peer = await service.admit(name, callers.peer(context))
            if unread is not None:
                return await unread(peer)
            assert handler is not None
            request = await context.read()
            if request is grpc.aio.EOF:
                raise RpcError(RpcCode.INVALID_ARGUMENT, "the call has no request")
            return await handler(request, peer)
        except RpcError as error:
            await _abort(context, error)
        except Exception:
            logger.exception("%s failed", name)
            await _abort(context, _INTERNAL_ERROR)

    return answer


def _stream_behaviour(
    name: str, service: Service, callers: _Callers
) -> Callable[[AsyncIterator[bytes], grpc.aio.ServicerContext[bytes, bytes]], Awaitable[None]]:
    handler = service.streams[name]

    async def converse(
        _: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> None:
        stream = _ServerStream(context)
        try:
            await handler(stream, await service.admit(name, callers.peer(context)))
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
