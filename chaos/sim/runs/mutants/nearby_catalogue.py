"""Planted bugs of reads from followers (KIP-392)."""

from __future__ import annotations

from typing import Final

from chaos.sim.runs.mutants.mutant import Edit, Mutant
from chaos.sim.work.load import LoadKind

_MACHINE: Final = "broker/partition/machine.py"
_VIEW: Final = "broker/partition/view.py"


def _bug(name: str, path: str, function: str, old: str, new: str, *kinds: str) -> Mutant:
    """``kinds``: of the storm. None: all of them."""
    return Mutant(name, (Edit(path, function, old, new),), kinds=kinds, load=LoadKind.LIGHT)


NEARBY = [
    _bug(
        "follower: show consumers its whole log",
        _VIEW,
        "PartitionView.readable_end",
        "log.end_offset if is_follower else self.high_watermark",
        "log.end_offset if is_follower or self.role is Role.FOLLOWER else self.high_watermark",
    ),
    _bug(
        "follower: take all that it copies for committed",
        _MACHINE,
        "PartitionMachine.copied",
        "min(leader_high_watermark, log.end_offset)",
        "log.end_offset",
    ),
]
