"""Planted bugs of records that are deleted, and of where logs begin."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import Edit, Mutant, bug
from chaos.sim.work.load import LoadKind

DELETION = [
    bug(
        "storage: call a start durable before the entry of its file is",
        "storage/offset_checkpoints.py",
        "OffsetCheckpoints.durable_start",
        "min(self.start_offsets.get(key, 0), self._durable_starts.get(key, 0))",
        "self.start_offsets.get(key, 0)",
    ),
    Mutant(
        "replication: begin anew without the producers of deleted batches",
        (
            Edit(
                "broker/replication/follower.py",
                "Following._begin_anew",
                "replica.reset_to(data.log_start_offset, handed)",
                "replica.reset_to(data.log_start_offset)",
            ),
        ),
        kinds=("kill", "cut_power"),
        load=LoadKind.LIGHT,
    ),
]
