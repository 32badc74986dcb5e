"""All that a node gets from outside."""

from __future__ import annotations

from dataclasses import dataclass

from stele.world import Clock, Rng
from world.compute import Compute
from world.disk import Disk
from world.network import Network
from world.tracing import Tracer


@dataclass(frozen=True, slots=True)
class World:
    """All that a node gets from outside."""

    clock: Clock
    disk: Disk
    network: Network
    rng: Rng
    compute: Compute
    tracer: Tracer | None = None
