"""The network as a node sees it: what a client needs of it, and listening and serving."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, runtime_checkable

from stele.addresses import Address, SecurityProtocol
from stele.security.client_security import ClientSecurity, TlsSettings
from stele.world import Connector, Stream

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


UnaryHandler = Callable[[bytes, Peer], Awaitable[bytes]]
StreamHandler = Callable[[Stream, Peer], Awaitable[None]]


@dataclass(slots=True)
class Service:
    """What a node serves on one port of the control plane, by full method name.

    A handler may raise RpcError; any other exception is logged and answered INTERNAL.
    """

    unary: dict[str, UnaryHandler] = field(default_factory=dict)
    streams: dict[str, StreamHandler] = field(default_factory=dict)

    def include(self, other: Service) -> None:
        """Add all of another service's methods."""
        self.unary.update(other.unary)
        self.streams.update(other.streams)

    def on_listener(self, name: str) -> Service:
        """The same for one listener: its callers have called the listener of this name."""

        def unary(handler: UnaryHandler) -> UnaryHandler:
            return lambda payload, peer: handler(payload, replace(peer, listener=name))

        def stream(handler: StreamHandler) -> StreamHandler:
            return lambda stream, peer: handler(stream, replace(peer, listener=name))

        return Service(
            {method: unary(handler) for method, handler in self.unary.items()},
            {method: stream(handler) for method, handler in self.streams.items()},
        )


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
    ) -> Listener:
        """Serve the control plane. ``health`` maps service names to serving or not. Raises OSError,
        or ConfigError if gRPC cannot do what ``tls`` asks for."""
        ...
