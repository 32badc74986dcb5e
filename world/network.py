"""The network as a node sees it: what a client needs of it, and listening and serving."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from stele.addresses import Address
from stele.security.client_security import ClientSecurity
from stele.world import Connector, Stream

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of a caller that has not proven an identity."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The caller of a method, as the network knows it."""

    address: str  # of its machine, without a port
    client_id: str | None = None  # as it calls itself
    principal: str = ANONYMOUS
    """The identity that the connection has proven. No connection proves one yet."""


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

    async def listen(
        self, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Listen for byte connections (data plane). Port 0 picks one. Raises OSError."""
        ...

    async def serve(
        self, address: Address, service: Service, *, health: Mapping[str, bool] | None = None
    ) -> Listener:
        """Serve the control plane. ``health`` maps service names to serving or not."""
        ...
