"""All faults. A new fault is a class and a line here."""

from __future__ import annotations

from typing import Final

from chaos.sim.faults.aim import NAMES
from chaos.sim.faults.clocks import JumpClock
from chaos.sim.faults.devices import (
    ExhaustHandles,
    FailReads,
    FailSyncs,
    FailWriteBack,
    FailWrites,
    FillDisk,
    FillDiskForAWhile,
    SlowDisk,
)
from chaos.sim.faults.fault import Fault
from chaos.sim.faults.listeners import MoveListeners
from chaos.sim.faults.losses import FlipBit, LoseFile, RestoreDisk, SpoilSector, WipeDisk
from chaos.sim.faults.network import Bridge, CutOneWay, Isolate
from chaos.sim.faults.processes import CutAllPower, CutPower, Kill, Pause, Stop
from chaos.sim.faults.roll import Roll
from chaos.sim.faults.transaction_aims import TRANSACTION_NAMES

# The order decides what a seed draws. A new fault at the end changes the fewest runs.
FAULTS: Final[tuple[type[Fault], ...]] = (
    Kill,
    CutPower,
    CutAllPower,
    Stop,
    Pause,
    Isolate,
    CutOneWay,
    JumpClock,
    Bridge,
    FailSyncs,
    FailReads,
    FailWrites,
    FillDisk,
    ExhaustHandles,
    SpoilSector,
    SlowDisk,
    FlipBit,
    LoseFile,
    WipeDisk,
    Roll,
    FailWriteBack,
    RestoreDisk,
    FillDiskForAWhile,
    MoveListeners,
)

KINDS: Final = (
    *(fault.name for fault in sorted(FAULTS, key=lambda fault: fault.family)),
    "voters",
    "moves",
    "aimed",
    "conditions",
)
"""The kinds of faults. First come the acts, family by family. ``voters`` and ``moves`` are changes
by operators (``operators``). ``aimed`` are several faults in the order in which they do harm
(``aim``). ``conditions`` are bad networks, slow disks and torn pages all the time."""

AIMED_AT: Final = "aimed:"
ONE_AIM: Final = tuple(f"{AIMED_AT}{name}" for name in (*NAMES, *TRANSACTION_NAMES))
"""Further kinds, which no run draws by itself: only the named aims."""

SEEN_AS: Final[dict[str, tuple[str, ...]]] = {
    **{fault.name: fault.seen_as or (fault.name,) for fault in FAULTS},
    "voters": ("voters added", "voters removed", "voters replaced", "voters wiped"),
    "moves": ("reassignments",),
    "aimed": ("aimed",),
    "conditions": (),
}
"""The counts which show that a kind had an effect."""
