"""Planted bugs of records that are deleted, and of where logs begin."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import bug

DELETION = [
    bug(
        "storage: call a start durable before the entry of its file is",
        "storage/offset_checkpoints.py",
        "OffsetCheckpoints.durable_start",
        "min(self.start_offsets.get(key, 0), self._durable_starts.get(key, 0))",
        "self.start_offsets.get(key, 0)",
    ),
]
