"""Planted bugs of what is done about disks that fail."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import Edit, Mutant

DEVICE = [
    Mutant(
        "storage: take the directory offline for any error but want of space",
        (
            Edit(
                "storage/errors.py",
                "    return Failure.of(error) is Failure.DEVICE\n",
                "    return Failure.of(error) is not Failure.SPACE\n",
            ),
        ),
        kinds=("exhaust_handles",),
    ),
    Mutant(
        "broker: try to read a bad sector again and again",
        (
            Edit(
                "broker/replication/fetch.py",
                "            failed = True\n",
                "            failed = False\n",
            ),
            Edit(
                "broker/replication/fetch.py",
                "            if isinstance(error, CorruptLogError):\n",
                "            if False:\n",
            ),
        ),
        ("rebuild_without_handles",),
    ),
    Mutant(
        "storage: discard a corrupt log in a way that cannot be repeated",
        (
            Edit(
                "storage/directory.py",
                "        if key in self.corrupt:\n"
                "            self._set_aside(key, CORRUPT_SUFFIX, topic_id)\n",
                "        if self.corrupt.pop(key):\n"
                "            self._set_aside(key, CORRUPT_SUFFIX, topic_id)\n",
            ),
        ),
        ("rebuild_without_handles",),
    ),
]
