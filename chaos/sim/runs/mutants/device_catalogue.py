"""Planted bugs of what is done about disks that fail."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import Edit, Mutant

DEVICE = [
    Mutant(
        "storage: call who waits for all writes at the end of any group",
        (
            Edit(
                "storage/group_commit.py",
                "GroupCommit._tell_synced",
                "self._order.over and self.failure is None",
                "self._waiting and self.failure is None",
            ),
            Edit(
                "storage/group_commit.py",
                "GroupCommit._tell_synced",
                "over, self._order.over = self._order.over, []",
                "over, self._order.over = list(self._waiting), []",
            ),
            Edit("storage/group_commit.py", "GroupCommit._finish", "self._order.over", "True"),
        ),
        kinds=("slow_disk", "cut_power", "cut_all_power"),
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
