"""An in-memory control plane for tests of the broker's edges."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

from stele.addresses import Address
from stele.security.client_security import PLAINTEXT, ClientSecurity
from stele.world import PortFacts, RpcCode, RpcError
from world.network import Peer, Service


def fake_rng() -> random.Random:
    return random.Random(7)


class FakeStream:
    """One end of an in-memory stream."""

    def __init__(self) -> None:
        self.peer: FakeStream = self
        self.inbox: asyncio.Queue[bytes | RpcError | None] = asyncio.Queue()
        self.closed = False

    @classmethod
    def pair(cls) -> tuple[FakeStream, FakeStream]:
        left, right = cls(), cls()
        left.peer, right.peer = right, left
        return left, right

    async def send(self, message: bytes) -> None:
        if self.closed or self.peer.closed:
            raise RpcError(RpcCode.CANCELLED, "the stream has ended")
        self.peer.inbox.put_nowait(message)

    async def receive(self) -> bytes | None:
        if self.closed:
            return None
        item = await self.inbox.get()
        if isinstance(item, RpcError):
            raise item
        return item

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.inbox.put_nowait(None)
            self.peer.inbox.put_nowait(None)

    def break_off(self) -> None:
        """End the stream as the death of the peer would."""
        error = RpcError(RpcCode.UNAVAILABLE, "connection reset")
        self.closed = self.peer.closed = True
        self.inbox.put_nowait(error)
        self.peer.inbox.put_nowait(error)


PEER = Peer("10.0.0.9")
"""The address of every caller."""


class FakeChannel:
    def __init__(self, network: FakeNetwork, address: tuple[str, int]) -> None:
        self._network = network
        self._address = address
        self.closed = False

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        service = self._network.services.get(self._address)
        if service is None:
            raise RpcError(RpcCode.UNAVAILABLE, "connection refused")
        try:
            async with asyncio.timeout(timeout_s):
                return await service.call(method, request, PEER)
        except TimeoutError:
            raise RpcError(RpcCode.DEADLINE_EXCEEDED, method) from None

    def stream(self, method: str) -> FakeStream:
        client, server = FakeStream.pair()
        service = self._network.services.get(self._address)
        if service is None:
            client.break_off()
            client.closed = False  # a failure to connect is raised by the first receive
            return client

        async def serve() -> None:
            try:
                await service.converse(method, server, PEER)
                await server.close()
            except RpcError as error:
                client.inbox.put_nowait(error)

        task = asyncio.get_running_loop().create_task(serve())
        self._network.tasks.append(task)
        return client

    async def close(self) -> None:
        self.closed = True


class FakeListener:
    def __init__(self, network: FakeNetwork, host: str, port: int) -> None:
        self._network, self._host, self._port = network, host, port

    @property
    def port(self) -> int:
        return self._port

    async def close(self, *, grace_s: float = 0.0) -> None:
        self._network.services.pop((self._host, self._port), None)
        self._network.factories.pop((self._host, self._port), None)


class FakeNetwork:
    """The world's network in memory: services by address, and listeners of byte connections."""

    security = PLAINTEXT

    def __init__(self) -> None:
        self.services: dict[tuple[str, int], Service] = {}
        self.health: dict[tuple[str, int], Mapping[str, bool]] = {}
        self.factories: dict[tuple[str, int], Callable[[], asyncio.BaseProtocol]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.in_use: set[int] = set()
        self._next_port = 40_000

    def _port(self, port: int) -> int:
        if port in self.in_use:
            raise OSError(98, f"cannot listen on port {port}: in use by another process")
        if port == 0:
            self._next_port += 1
            return self._next_port
        return port

    async def connect(
        self, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> asyncio.Transport:
        raise OSError("not in this fake")

    async def look_at_port(self, address: Address) -> PortFacts | None:
        return None

    def secured(self, security: ClientSecurity) -> FakeNetwork:
        return self

    def channel(self, address: Address, client_id: str | None = None) -> FakeChannel:
        return FakeChannel(self, address[:2])

    async def listen(
        self, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> FakeListener:
        host, port = address.host, self._port(address.port)
        self.factories[host, port] = factory
        return FakeListener(self, host, port)

    async def serve(
        self, address: Address, service: Service, *, health: Mapping[str, bool] | None = None
    ) -> FakeListener:
        host, port = address.host, self._port(address.port)
        self.services[host, port] = service
        self.health[host, port] = health or {}
        return FakeListener(self, host, port)
