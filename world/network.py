"""The network as a node sees it: what a client needs of it, and listening and serving."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, runtime_checkable

from stele.addresses import Address, SecurityProtocol
from stele.security.client_security import ClientSecurity, TlsSettings
from stele.world import Connector, RpcCode, RpcError, Stream

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of a caller that has not proven an identity."""


class Identity(NamedTuple):
    """What the handshake of a connection has proven of the peer."""

    principal: str = ANONYMOUS
    node_ids: frozenset[int] = frozenset()
    """The nodes that its certificate names. If it names any, it acts as these only."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The caller of a method, as the network knows it."""

    address: str  # of its machine, without a port
    client_id: str | None = None  # as it calls itself
    principal: str = ANONYMOUS
    """The identity that the connection has proven."""
    node_ids: frozenset[int] = frozenset()
    """The nodes that its certificate names. If it names any, it acts as these only."""
    authorization: str | None = field(default=None, repr=False)
    """The login that the call carries. Nobody has checked it yet."""
    listener: str = ""
    """The name of the controllers' listener that is called. Empty on others, which know theirs."""
    by_delegation_token: bool = False
    """Whether a delegation token has proven the principal, and no secret of the client's own."""
    session: object = field(default=None, repr=False)
    """The session of its login, for the logins that have admitted it. Nobody else reads it."""


UnaryHandler = Callable[[bytes, Peer], Awaitable[bytes]]
StreamHandler = Callable[[Stream, Peer], Awaitable[None]]
UnreadHandler = Callable[[Peer], Awaitable[bytes]]

Admission = Callable[[Peer], Awaitable[Peer]]
"""Admits the caller of a method, and returns it as the handler is to know it. Raises RpcError."""

REFLECTION: Final = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
"""A standard method, which the network adds to those of a service."""


@dataclass(slots=True)
class Service:
    """What a node serves on one port of the control plane, by full method name.

    A handler may raise RpcError; any other exception is logged and answered INTERNAL. The network
    admits a caller before it reads anything of the request. So the request of a stranger, which may
    be as large as any, takes no memory.
    """

    unary: dict[str, UnaryHandler] = field(default_factory=dict)
    streams: dict[str, StreamHandler] = field(default_factory=dict)
    unread: dict[str, UnreadHandler] = field(default_factory=dict)
    """Unary methods whose requests are never read: what they say is in ``Peer.authorization``."""
    admissions: dict[str, tuple[Admission, ...]] = field(default_factory=dict)
    """What a caller of a method has to pass, one after the other."""

    @property
    def methods(self) -> list[str]:
        return [*self.unary, *self.streams, *self.unread]

    def include(self, other: Service) -> None:
        """Add all of another service's methods."""
        self.unary.update(other.unary)
        self.streams.update(other.streams)
        self.unread.update(other.unread)
        self.admissions.update(other.admissions)

    def behind(self, admission: Admission) -> Service:
        """The same methods, of whose callers this is asked first."""
        first = (admission,)
        admissions = {name: first + self.admissions.get(name, ()) for name in self.methods}
        return Service(self.unary, self.streams, self.unread, admissions)

    async def admit(self, method: str, peer: Peer) -> Peer:
        """The caller as the handler is to know it. Raises RpcError."""
        for admission in self.admissions.get(method, ()):
            peer = await admission(peer)
        return peer

    async def call(self, method: str, payload: bytes, peer: Peer) -> bytes:
        """The answer to a unary call. Raises RpcError, also if there is no such method."""
        if method not in self.unary and method not in self.unread:
            raise RpcError(RpcCode.UNIMPLEMENTED, method)
        peer = await self.admit(method, peer)
        unread = self.unread.get(method)
        return await (self.unary[method](payload, peer) if unread is None else unread(peer))

    async def converse(self, method: str, stream: Stream, peer: Peer) -> None:
        """Serve a stream. Raises RpcError, also if there is no such method."""
        if method not in self.streams:
            raise RpcError(RpcCode.UNIMPLEMENTED, method)
        await self.streams[method](stream, await self.admit(method, peer))

    def on_listener(self, name: str) -> Service:
        """The same for one listener: its callers have called the listener of this name."""

        async def named(peer: Peer) -> Peer:
            return replace(peer, listener=name)

        return self.behind(named)


class IdentityError(Exception):
    """A peer's certificate gives it no identity here; the message says why."""


@runtime_checkable
class LearnsIdentity(Protocol):
    """A protocol of the data plane that is told who its peer is."""

    def tls_established(self, identity: Identity) -> None:
        """The handshake is complete, and bytes come from now on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTlsSettings:
    """How the listeners of one name are encrypted, and what they make of a certificate."""

    listener: str
    protocol: SecurityProtocol
    tls: TlsSettings
    client_auth: str  # none, requested or required
    principal_of: Callable[[bytes | None], str]
    """The principal of a peer by its certificate in DER. Raises IdentityError."""
    named: Callable[[str], str]
    """The name of a setting, as it is set for this listener."""
    is_shown_to_nodes: bool = False
    """Whether the node also shows the certificate to other nodes, as a client and as a server."""
    allows_dn_changes: bool = False
    allows_san_changes: bool = False


class ServerTls(Protocol):
    """The certificate of the listeners of one name. It can be exchanged while they serve, which
    concerns new connections only."""

    @property
    def valid_until_ms(self) -> int:
        """When the certificate ends, since the Unix epoch."""
        ...

    @property
    def handshakes(self) -> int:
        """How many were completed."""
        ...

    @property
    def failures(self) -> Mapping[str, int]:
        """How many connections failed, by the kind of the reason."""
        ...

    @property
    def refusal(self) -> str | None:
        """Why the last exchange was refused; None if it was not."""
        ...

    def names_host(self, host: str) -> bool:
        """Whether clients that connect to this host accept the certificate."""
        ...

    async def refresh(self) -> None:
        """Exchange the certificate if its files have changed, or try again if it was refused."""
        ...

    async def exchange(self, tls: TlsSettings) -> str | None:
        """Exchange it by other settings. Returns why not; then the old one stays, and ``refresh``
        tries the settings again."""
        ...

    async def why_not(self, tls: TlsSettings) -> str | None:
        """Why other settings would be refused. Nothing is exchanged."""
        ...


class Listener(Protocol):
    """A bound, listening port."""

    @property
    def port(self) -> int: ...

    async def close(self, *, grace_s: float = 0.0) -> None:
        """Accept no new connections, and end the open ones after ``grace_s`` seconds."""
        ...


class Network(Connector, Protocol):
    """Both planes, both directions."""

    def secured(self, security: ClientSecurity) -> Connector:
        """The client's half, whose connections and channels are protected with this. A node makes
        its own connections by it."""
        ...

    def server_tls(self, settings: ServerTlsSettings) -> ServerTls:
        """Read the certificate of the listeners of a name. Raises SteleError."""
        ...

    async def fetch(self, url: str, *, timeout_s: float) -> bytes:
        """The content of an https or file URL, of a bounded size. Raises OSError."""
        ...

    async def listen(
        self,
        address: Address,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ServerTls | None = None,
    ) -> Listener:
        """Listen for byte connections (data plane). Port 0 picks one. Raises OSError.

        With ``tls`` a protocol is made when the connection is accepted, and gets bytes when its
        handshake is complete.
        """
        ...

    async def serve(
        self,
        address: Address,
        service: Service,
        *,
        health: Mapping[str, bool] | None = None,
        tls: ServerTls | None = None,
        max_connections: int | None = None,
    ) -> Listener:
        """Serve the control plane. ``health`` maps service names to serving or not. A connection
        beyond ``max_connections`` is closed at once. Raises OSError, or ConfigError if gRPC cannot
        do what ``tls`` asks for."""
        ...
