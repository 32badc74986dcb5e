"""One process's way to the simulated network: ``world.network.Network``."""

from __future__ import annotations

import asyncio
import copy
import errno
import os
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from chaos.sim.world.channel import SimChannel
from chaos.sim.world.fabric import Fabric, Route
from chaos.sim.world.loop import Scheduler
from chaos.sim.world.process import Machine, Process
from chaos.sim.world.rpc_server import RpcServer
from chaos.sim.world.transport import SimTransport, pair
from stele.addresses import Address
from stele.errors import ConfigError
from stele.grpc_login import LoggedInChannel
from stele.security.client_security import PLAINTEXT, ClientSecurity
from stele.world import Channel, PortFacts
from world.network import ANONYMOUS, Listener, ServerTls, ServerTlsSettings, Service

_THIS_MACHINE = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::", "")

# When a connecting kernel gives up.
_CONNECT_GIVE_UP_S = 30.0


class Surroundings(Protocol):
    """What a network needs of its simulation."""

    fabric: Fabric
    scheduler: Scheduler
    machines: dict[str, Machine]

    def note(self, where: str, kind: str, text: str = "") -> None: ...


class SimNetwork:
    """The data plane and the control plane of one process, as client and as server. Host names are
    machines' names."""

    def __init__(self, simulation: Surroundings, process: Process) -> None:
        self.fabric = simulation.fabric
        self.process = process
        self.security = PLAINTEXT
        self.principal = ANONYMOUS
        self.address: str | None = None
        self._simulation = simulation

    # --------------------------------------------------------------------------------- client

    async def connect(
        self, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> asyncio.Transport:
        target = self.resolve(address.host)
        if target is None:
            raise socket.gaierror(socket.EAI_NONAME, f"no host {address.host}")
        attempt = _Connecting(self, target, address.port, factory)
        self.note("connect", f"{target.name}:{address.port}")
        return await attempt.run()

    async def look_at_port(self, address: Address) -> PortFacts | None:
        return None

    def channel(self, address: Address, client_id: str | None = None) -> Channel:
        channel = SimChannel(self, address, client_id)
        if self.security.sasl is None:
            return channel
        return LoggedInChannel(channel, self.security.sasl, self.process.world.rng)

    async def fetch(self, url: str, *, timeout_s: float) -> bytes:
        raise OSError(errno.EHOSTUNREACH, f"{url}: there is no web here")

    def secured(self, security: ClientSecurity) -> SimNetwork:
        """The same process's network, whose connections carry this security."""
        secured = copy.copy(self)
        secured.security = security
        return secured

    def identified(self, principal: str) -> SimNetwork:
        """The same process's network, whose connections prove this principal. How they prove it is
        not simulated."""
        identified = copy.copy(self)
        identified.principal = principal
        return identified

    def addressed(self, address: str) -> SimNetwork:
        """The same process's network, whose connections come from this address and not from the
        machine's name."""
        addressed = copy.copy(self)
        addressed.address = address
        return addressed

    # --------------------------------------------------------------------------------- server

    def server_tls(self, settings: ServerTlsSettings) -> ServerTls:
        raise ConfigError(f"listener {settings.listener}: the simulation has no TLS")

    async def listen(
        self,
        address: Address,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ServerTls | None = None,
    ) -> Listener:
        assert tls is None
        return ByteListener(self, self._bind(address), factory)

    async def serve(
        self,
        address: Address,
        service: Service,
        *,
        health: Mapping[str, bool] | None = None,
        tls: ServerTls | None = None,
        max_connections: int | None = None,
    ) -> Listener:
        assert tls is None
        return RpcServer(self, self._bind(address), service, health or {})

    def _bind(self, address: Address) -> int:
        host, port = address.host, address.port
        machine = self.process.machine
        if self.resolve(host) is not machine:
            raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {host}:{port}: not this machine")
        if port in machine.ports:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {host}:{port}: the port is in use")
        return port or machine.ephemeral_port()

    # ------------------------------------------------------------------------- the simulation

    def resolve(self, host: str) -> Machine | None:
        """The machine of that name. Names such as ``localhost`` mean this machine."""
        if host in _THIS_MACHINE:
            return self.process.machine
        return self._simulation.machines.get(host)

    def note(self, kind: str, text: str) -> None:
        self._simulation.note(self.process.name, kind, text)

    def internal_error(self, text: str) -> None:
        """A handler failed with an error that it should have handled."""
        if not self.process.dead:  # else the error comes from the clean-up of a killed handler
            self._simulation.scheduler.errors.append((self.process.name, text))


class ByteListener:
    """A port that accepts byte connections."""

    def __init__(
        self, network: SimNetwork, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.process = network.process
        self.factory = factory
        self.port = port
        self.accepted: list[SimTransport] = []
        self._resource = self.process.own(self)
        self.process.machine.ports[port] = self

    def die(self, *, silent: bool) -> None:
        self._forget()

    def _forget(self) -> None:
        if self.process.machine.ports.get(self.port) is self:
            del self.process.machine.ports[self.port]

    def accept(self, transport: SimTransport) -> None:
        """Take a new connection as the kernel does. The process accepts it when it runs."""
        self.accepted = [other for other in self.accepted if not other.is_closing()]
        self.accepted.append(transport)
        self.process.loop.call_soon(self._begin, transport)

    def _begin(self, transport: SimTransport) -> None:
        if not transport.is_closing():
            transport.begin(self.factory())

    async def close(self, *, grace_s: float = 0.0) -> None:
        if self.process.dead:
            return
        self._forget()
        self.process.disown(self._resource)
        deadline = self.process.loop.time() + grace_s
        while self._open() and self.process.loop.time() < deadline:
            await asyncio.sleep(0.01)
        for transport in self._open():
            transport.abort()

    def _open(self) -> list[SimTransport]:
        return [transport for transport in self.accepted if not transport.is_closing()]


class _Connecting:
    """A connection being opened."""

    def __init__(
        self,
        network: SimNetwork,
        target: Machine,
        port: int,
        factory: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._fabric = network.fabric
        self._process = network.process
        self._principal = network.principal
        self._address = network.address
        self._target = target
        self._port = port
        self._factory = factory
        self._result: asyncio.Future[SimTransport] = self._process.loop.create_future()

    async def run(self) -> asyncio.Transport:
        source = self._process.machine
        Route(self._fabric, source, self._target).send(self._arrive)
        give_up = self._process.loop.call_later(
            _CONNECT_GIVE_UP_S,
            self._fail,
            TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)),
        )
        try:
            return await self._result
        finally:
            give_up.cancel()

    def _arrive(self) -> None:
        """The attempt arrives at the target's machine."""
        listener = self._target.ports.get(self._port)
        if not isinstance(listener, ByteListener):
            refused = ConnectionRefusedError(
                errno.ECONNREFUSED, f"{self._target.name}:{self._port} refused"
            )
            self._answer(lambda: self._process.loop.call_soon(self._fail, refused))
            return
        near, far = pair(
            self._fabric,
            self._process,
            self._process.machine.ephemeral_port(),
            listener.process,
            self._port,
            self._principal,
            self._address,
        )
        # The handshake is the first message on the way back: what the server writes comes after it.
        far.send_handshake(lambda: self._process.loop.call_soon(self._made, near))
        listener.accept(far)

    def _answer(self, deliver: Callable[[], object]) -> None:
        Route(self._fabric, self._target, self._process.machine).send(deliver)

    def _made(self, transport: SimTransport) -> None:
        if self._result.done():  # the client has given up meanwhile
            transport.abort()
            return
        transport.begin(self._factory())
        self._result.set_result(transport)

    def _fail(self, error: OSError) -> None:
        if not self._result.done():
            self._result.set_exception(error)
