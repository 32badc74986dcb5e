"""Planted bugs of what is done about disks that fail."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import Edit, Mutant

DEVICE = [
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
    Mutant(
        "runtime: let all directories of a file system share the handle of one",
        (
            Edit(
                "runtime/real/held_directories.py",
                "HeldDirectories.of",
                "self._handles.get(found)",
                "next(iter(self._handles.values())) if found else None",
            ),
        ),
        kinds=("fail_write_back",),
    ),
    Mutant(
        "storage: write an abort marker before its entry of the transaction index",
        (
            Edit(
                "storage/transactions.py",
                "LogTransactions.announce",
                "self._index(aborted_entry(ended, producers.first_open_beside(producer_id)))",
                "",
            ),
            Edit(
                "storage/transactions.py",
                "LogTransactions.ended",
                "ended = log.producers.end(header, marker, offset, now_ms)",
                """
ended = log.producers.end(header, marker, offset, now_ms)
if ended is not None and not ended.commit:
    self._index(aborted_entry(ended, log.producers.first_open_offset))
""",
            ),
        ),
        kinds=("fill_disk_for_a_while",),
    ),
]
