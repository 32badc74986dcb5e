"""A law is something that always holds of a simulated cluster. It is checked from outside.

A law reads the memory of nodes and the disks of machines, hears their calls, and disturbs nothing.
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
    QUORUM = "when a controller has run"  # ``Scene.quorum``
    METADATA = "when the committed metadata are others than at the last look"
    REPLICAS = "at replicas that are not what they were"  # ``Scene.leading``, ``Scene.following``
    EVERY_LOOK = "at every look"
    SELDOM = "at every tenth look"
    RARELY = "at every fiftieth look"
    TOLD = "when it is told or hears something"


class Proof(enum.Enum):
    """A run, or a campaign of runs, proves nothing if the law had nothing to look at in it."""

    RUN = "each run"
    CAMPAIGN = "many runs with all faults"
    RARE = "many runs with all faults under rare load"


class Law:
    """A law has a file of its own and a line in ``registry.LAWS``.

    ``looked`` counts the comparisons that could have found the law broken. It does not count calls
    that found nothing to compare.
    """

    name: ClassVar[str]
    cadence: ClassVar[Cadence]
    hears: ClassVar[tuple[str, ...]] = ()  # the calls whose names end in one of these
    proof: ClassVar[Proof] = Proof.RUN

    looked = 0

    @classmethod
    def of(cls, scene: Scene) -> Self:
        """The law for one run. It may ask the scene for laws that the registry lists before it."""
        return cls()

    def look(self, cluster: SimCluster, report: Report) -> None:
        """Report where the law does not hold."""

    def hear(self, stage: Stage, said: Said) -> None:
        """A call named in ``hears`` is sent, arrives or is answered. The law must not stop it."""
