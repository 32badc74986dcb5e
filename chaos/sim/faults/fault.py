"""What a fault is: one kind of thing that goes wrong in a storm."""

from __future__ import annotations

import enum
from typing import ClassVar

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.field import Field


class Family(enum.IntEnum):
    """What goes wrong. Runs decide by lot which kinds they leave out, family by family."""

    PROCESS = enum.auto()
    NETWORK = enum.auto()
    CLOCK = enum.auto()
    DEVICE = enum.auto()  # a disk does not do what it is asked for
    DAMAGE = enum.auto()  # of what was on a disk
    OPERATION = enum.auto()  # people at work


class Fault:
    """One class, and one line in ``registry.FAULTS``."""

    name: ClassVar[str]
    family: ClassVar[Family]
    weight: ClassVar[int]  # how often it is drawn, against the others
    seen_as: ClassVar[tuple[str, ...]] = ()
    """The counts which show that it came to something; none: that of its name."""

    def __init__(self, field: Field) -> None:
        self.field = field

    def strike(self, node: SimNode) -> bool:
        """Do it to a node, or from there; False when there is nothing to do."""
        raise NotImplementedError

    def mend(self) -> None:
        """End it everywhere, now and then and after the storm. What keeps nodes down ends when they
        are revived, and cuts of the network are healed all together."""
