"""An operator moves the listener of the brokers among themselves, one broker after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.fault import Family, Fault
from chaos.sim.faults.field import Field

_READY_TIMEOUT_S: Final = 10.0
_NAME: Final = "NODES"
_LISTS: Final = {
    "listeners": 0,
    "grpc.listeners": 100,
    "advertised.listeners": 0,
    "grpc.advertised.listeners": 100,
}
"""The keys that name listeners. Their port is so much above the port of Kafka's protocol."""

_LOGIN: Final = {
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.nodes.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.nodes.plain.sasl.jaas.config": (
        'x.PlainLoginModule required username="node" password="n" user_node="n";'
    ),
}

PHASES: Final = ((9096, "PLAINTEXT"), (9096, _NAME), (9097, _NAME), (9097, "PLAINTEXT"))
"""The port of a listener with logins, and the listener that brokers use among themselves. In a
cycle. No broker begins a phase before all have come to the one before
(docs/moving-to-security.md)."""


class MoveListeners(Fault):
    """Brokers come back with another listener, another protocol, another port. In between brokers
    of two phases work together. Clients stay with the listener that there always is."""

    name, family, weight = "listeners", Family.OPERATION, 1

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._rolling = False
        self._phase = 0
        self._phase_of: dict[int, int] = {}  # by broker, once it is configured so

    def strike(self, node: SimNode) -> bool:
        if self._rolling:
            return False
        self._rolling = True
        self.field.go_on(self._roll())
        return True

    async def _roll(self) -> None:
        """A broker that another fault keeps down has its turn in a later act."""
        brokers = [node for node in self.field.nodes if node.config.is_broker]
        if all(map(self._is_through, brokers)):
            self._phase += 1
        for node in brokers:
            if self.field.is_calm:
                break
            if not self._is_through(node):
                await self._restart(node)
        self._rolling = False

    def _is_through(self, node: SimNode) -> bool:
        return self._phase_of.get(node.id) == self._phase and node.runs_as_configured

    async def _restart(self, node: SimNode) -> None:
        field = self.field
        if not node.ready or node.id in field.paused:
            return
        if field.rng.random() < 0.5:
            await field.stop(node)
        else:
            field.kill(node)
        if self._phase_of.get(node.id) != self._phase:
            node.reconfigure(_settings(node, *PHASES[self._phase % len(PHASES)]))
            self._phase_of[node.id] = self._phase
        field.revive(node)
        end = field.simulation.now + _READY_TIMEOUT_S
        while not (self._is_through(node) or field.is_calm or field.simulation.now > end):
            await asyncio.sleep(0.1)


def _settings(node: SimNode, port: int, inter_broker: str) -> dict[str, str]:
    """The broker's settings with a listener in addition, or with that listener at another port."""
    raw = node.config.raw
    kinds = raw.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT")
    return {
        **{
            key: ",".join([*_others(raw[key]), f"{_NAME}://{node.host}:{port + above}"])
            for key, above in _LISTS.items()
            if key in raw
        },
        "listener.security.protocol.map": ",".join([*_others(kinds), f"{_NAME}:SASL_PLAINTEXT"]),
        "inter.broker.listener.name": inter_broker,
        **_LOGIN,
    }


def _others(listed: str) -> Iterator[str]:
    return (each for each in listed.split(",") if not each.startswith(f"{_NAME}:"))
