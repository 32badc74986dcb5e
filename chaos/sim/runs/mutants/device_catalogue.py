"""Planted bugs of what is done about disks that fail."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import Edit, Mutant
from chaos.sim.work.load import LoadKind

DEVICE = [
    Mutant(
        "storage: sync all directories of a file system by one handle",
        (
            Edit(
                "runtime/real/held_directories.py",
                "HeldDirectories.of",
                "self._handles.get(self._innermost(paths))",
                "next(iter(self._handles.values()), None)",
            ),
        ),
        kinds=("fail_write_back",),
        load=LoadKind.RARE,
    ),
    Mutant(
        "storage: take the directory offline for any error but want of space",
        (
            Edit(
                "storage/errors.py",
                "is_device_failure",
                "Failure.of(error) is Failure.DEVICE",
                "Failure.of(error) is not Failure.SPACE",
            ),
        ),
        kinds=("exhaust_handles",),
    ),
    Mutant(
        "broker: try to read a bad sector again and again",
        (
            Edit(
                "broker/replication/cold_reads.py",
                "ColdReads._warm_and_retry",
                "failed = True",
                "failed = False",
            ),
            Edit(
                "broker/replication/cold_reads.py",
                "ColdReads._warm_and_retry",
                "isinstance(error, CorruptLogError)",
                "False",
            ),
        ),
        ("rebuild_without_handles",),
    ),
    Mutant(
        "storage: discard a corrupt log in a way that cannot be repeated",
        (
            Edit(
                "storage/directory.py",
                "LogDirectory.discard_corrupt",
                "key in self.corrupt",
                "self.corrupt.pop(key)",
            ),
        ),
        ("rebuild_without_handles",),
    ),
]
