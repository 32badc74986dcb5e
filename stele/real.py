"""The parts of the real world that a client needs: clock, randomness, TCP and gRPC channels.

The server's half (listening, serving) builds on this in ``runtime/real``.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import random
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from stele.addresses import Address
from stele.security.client_security import PLAINTEXT, ClientSecurity
from stele.world import Channel, Connector, PortFacts, Rng

if TYPE_CHECKING:
    from stele.security.client_tls import ClientTls

# CLOCK_BOOTTIME runs on while the machine sleeps, which a session timeout must notice.
_LOOK_S: Final = 5.0
_MONOTONIC_ID: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RealClock:
    """The machine's clocks."""

    # Without a frame of its own: it is asked for dozens of times per request.
    monotonic = staticmethod(functools.partial(time.clock_gettime, _MONOTONIC_ID))

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000


def real_rng() -> Rng:
    """The operating system's randomness: nobody can guess the salts and nonces made of it."""
    return random.SystemRandom()


class RealConnector:
    """Opens real connections and channels."""

    def __init__(self, security: ClientSecurity = PLAINTEXT) -> None:
        self.security = security
        self._tls: ClientTls | None = None  # made by the first encrypted connection
        # A client that cannot connect tries again soon.
        self._looked: dict[Address, tuple[float, PortFacts | None]] = {}

    async def connect(
        self, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> asyncio.Transport:
        if self.security.protocol.has_tls:
            transport = await self._encrypted().connect(address, factory)
        else:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_connection(factory, address.host, address.port)
        set_no_delay(transport)
        return transport

    async def look_at_port(self, address: Address) -> PortFacts | None:
        now_s = RealClock.monotonic()
        if address not in self._looked or now_s - self._looked[address][0] >= _LOOK_S:
            from stele.port_probe import look_at_port  # only a client in trouble needs it

            loop = asyncio.get_running_loop()
            self._looked[address] = now_s, await loop.run_in_executor(None, look_at_port, address)
        return self._looked[address][1]

    def channel(self, address: Address, client_id: str | None = None) -> Channel:
        from stele.grpc_channel import RealChannel  # loads grpc, which producers do not need

        channel = RealChannel(address, client_id, self.security)
        if self.security.sasl is None:
            return channel
        from stele.grpc_login import LoggedInChannel

        return LoggedInChannel(channel, self.security.sasl, real_rng())

    def _encrypted(self) -> ClientTls:
        if self._tls is None:
            from stele.security.client_tls import ClientTls  # loads cryptography

            self._tls = ClientTls(self.security, lambda: datetime.datetime.now(datetime.UTC))
        return self._tls


def set_no_delay(transport: asyncio.Transport) -> None:
    """Send small frames at once: answers must not wait for Nagle's algorithm."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def real_connector(security: ClientSecurity) -> Connector:
    """The connector for clients."""
    return RealConnector(security)
