"""A fault: one kind of thing that goes wrong in a storm."""

from __future__ import annotations

import enum
from typing import ClassVar

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.field import Field


class Family(enum.IntEnum):
    """The families of faults. Each run draws which kinds it leaves out, family by family."""

    PROCESS = enum.auto()
    NETWORK = enum.auto()
    CLOCK = enum.auto()
    DEVICE = enum.auto()  # a disk does not do what it is asked to do
    DAMAGE = enum.auto()  # data on a disk is damaged or lost
    OPERATION = enum.auto()  # operators work on the cluster


class Fault:
    """A fault is a class, and a line in ``registry.FAULTS``."""

    name: ClassVar[str]
    family: ClassVar[Family]
    weight: ClassVar[int]  # how often it is drawn, relative to the others
    seen_as: ClassVar[tuple[str, ...]] = ()
    """The counts which show that it had an effect; if empty, the count of its name."""

    def __init__(self, field: Field) -> None:
        self.field = field

    def strike(self, node: SimNode) -> bool:
        """Strike a node, or from this node on. False if there is nothing to do."""
        raise NotImplementedError

    def mend(self) -> None:
        """End the fault everywhere: now and then, and after the storm. This is for faults that
        neither the revival of nodes nor the healing of the network ends."""
