"""Planted bugs of deletions and of added partitions."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import bug

ADMINISTRATION = [
    bug(
        "broker: answer a deletion that only the leader has made",
        "broker/partition/machine.py",
        "        return min(self._log.start_offset, *starts) if starts else",
        "        return",
    ),
    bug(
        "controller: add one partition more than was asked for",
        "controller/partition_counts.py",
        "        return [placer.place(factor) for _ in range(added)]\n",
        "        return [placer.place(factor) for _ in range(added + 1)]\n",
    ),
]
