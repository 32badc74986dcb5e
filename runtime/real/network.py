"""The real network of a server: TCP listeners for the data plane, gRPC for the control plane."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import cast

from runtime.real.binding import bind_error
from runtime.real.fetching import fetch
from runtime.real.grpc_server import GrpcListener, serve_grpc
from runtime.real.tls_listener import RealServerTls
from runtime.real.tls_transport import RECEIVE_BYTES, TlsTransport
from stele.addresses import Address
from stele.real import RealConnector, set_no_delay
from stele.security.client_security import ClientSecurity
from stele.world import Connector
from world.network import Listener, ServerTls, ServerTlsSettings, Service

# More than any system allows: it takes its own limit, net.core.somaxconn, as gRPC does by itself. A
# client that finds the queue full asks again after 1 s, then 3 s, and knows of nothing.
_BACKLOG = 65_535


class RealNetwork(RealConnector):
    """Both planes, both directions."""

    def __init__(self, handshakes: Executor | None = None) -> None:
        """``handshakes``: where TLS handshakes run."""
        super().__init__()
        # A server that is garbage collected while it runs hangs the process: inside the collection
        # gRPC waits for calls that its closed event loop never delivers.
        self._serving: dict[GrpcListener, None] = {}
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
            raise bind_error(address, error) from None
        return _TcpListener(server, connections)

    async def serve(
        self,
        address: Address,
        service: Service,
        *,
        health: Mapping[str, bool] | None = None,
        tls: ServerTls | None = None,
        max_connections: int | None = None,
    ) -> Listener:
        """See ``Network.serve``; ``health`` is read anew at every question, so it may change.

        Beside the service itself, the standard ``grpc.health.v1`` and reflection are served.
        """
        of_listener = None if tls is None else _real(tls)
        listener = await serve_grpc(address, service, health or {}, of_listener, max_connections)
        self._serving[listener] = None
        listener.on_closed = self._closed
        return listener

    def _closed(self, listener: GrpcListener) -> None:
        self._serving.pop(listener, None)

    async def stop_serving(self) -> None:
        """End at once all servers that ``serve`` began and nobody closed; before the loop ends."""
        await asyncio.gather(*(listener.close() for listener in list(self._serving)))
        self._handshakes.shutdown(wait=False)


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
