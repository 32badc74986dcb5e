"""A port that serves the simulated control plane, and what runs there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from chaos.sim.world.fabric import Fabric
from chaos.sim.world.process import Machine, Process
from stele.world import RpcCode, RpcError
from world.network import Peer, Service

INTERNAL_ERROR: Final = RpcError(RpcCode.INTERNAL, "internal error; see the node's log")


class ProcessNetwork(Protocol):
    """What calls and streams need of their process's network."""

    fabric: Fabric
    process: Process
    principal: str

    def resolve(self, host: str) -> Machine | None: ...

    def note(self, kind: str, text: str) -> None: ...

    def internal_error(self, text: str) -> None:
        """A handler failed with an error that it should have handled."""
        ...


class Served(Protocol):
    """A call or a stream at its server."""

    @property
    def peer(self) -> Peer: ...

    def server_closed(self) -> None: ...

    def server_died(self, *, silent: bool) -> None: ...


class RpcServer:
    """A port that serves the control plane, and the calls and streams that run there now."""

    def __init__(
        self, network: ProcessNetwork, port: int, service: Service, health: Mapping[str, bool]
    ) -> None:
        self.network = network
        self.process: Process = network.process
        self.service = service
        self.port = port
        self.health = health
        self.open = True
        self.calls: dict[int, Served] = {}
        self._next_call = 0
        self._resource = self.process.own(self)
        self.process.machine.ports[port] = self

    def add(self, call: Served) -> int:
        self._next_call += 1
        self.calls[self._next_call] = call
        return self._next_call

    def reset(self, host: str) -> None:
        """Break all calls and streams of that machine, as a firewall that rejects packets does."""
        for call in list(self.calls.values()):
            if call.peer.address == host:
                call.server_closed()

    def die(self, *, silent: bool) -> None:
        self.open = False
        self.process.machine.ports.pop(self.port, None)
        for call in list(self.calls.values()):
            call.server_died(silent=silent)
        self.calls.clear()

    async def close(self, *, grace_s: float = 0.0) -> None:
        if self.process.dead or not self.open:
            return
        self.open = False
        self.process.machine.ports.pop(self.port, None)
        self.process.disown(self._resource)
        deadline = self.process.loop.time() + grace_s
        while self.calls and self.process.loop.time() < deadline:
            await asyncio.sleep(0.01)
        for call in list(self.calls.values()):
            call.server_closed()
        while self.calls:
            await asyncio.sleep(0.01)
