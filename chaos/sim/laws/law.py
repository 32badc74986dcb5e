"""What a law is: something that always holds of a simulated cluster, looked at from outside.

A law reads what nodes hold in memory and what machines have on disk, hears what is said, and
disturbs nothing.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage


class Cadence(enum.Enum):
    """When a law looks."""

    NODES = "at nodes that have run"  # ``Scene.ran``
    QUORUM = "when a controller has run"
    METADATA = "when the committed metadata are others than at the last look"
    REPLICAS = "at replicas that are not what they were"  # ``Scene.leading``, ``Scene.following``
    EVERY_LOOK = "at every look"
    SELDOM = "at every tenth look"
    RARELY = "at every fiftieth look"
    TOLD = "when it is told or hears something"


class Proof(enum.Enum):
    """What proves nothing if the law has never looked at anything in it."""

    RUN = "each run"
    CAMPAIGN = "many runs with all faults"


class Law:
    """One file, one line in ``registry.LAWS``.

    ``looked`` counts how often the law has held something against what it says, and could have
    found it broken: not how often it was called.
    """

    name: ClassVar[str]
    cadence: ClassVar[Cadence]
    hears: ClassVar[tuple[str, ...]] = ()  # ends of names of calls
    proof: ClassVar[Proof] = Proof.RUN

    looked = 0

    @classmethod
    def of(cls, scene: Scene) -> Self:
        """For one run. Laws may ask the scene for laws that stand before them in the registry."""
        return cls()

    def look(self, cluster: SimCluster, report: Report) -> None:
        """Report where it does not hold."""

    def hear(self, stage: Stage, said: Said) -> None:
        """A call that it wants to hear is sent, arrives or is answered. Nothing may be stopped."""
