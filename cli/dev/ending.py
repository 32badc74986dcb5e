"""Ends processes of a cluster whose owner cannot do it: it was killed, or does not answer.

A process is ended by its id, and only if the id still means the process that was written down.
"""

from __future__ import annotations

import signal
import time
from typing import Final

from cli.dev.cluster_record import ClusterRecord
from cli.dev.control import Say
from cli.dev.process_identity import ProcessIdentity
from cli.output import CommandError

_END_S: Final = 60.0
_LOOK_S: Final = 0.05


def kill_cluster(record: ClusterRecord, say: Say) -> dict[str, str]:
    """The owner first: otherwise it would report its nodes. How each process ended. Raises
    CommandError."""
    ended = {}
    if record.owner.send(signal.SIGKILL):
        say(f"the owner (pid {record.owner.pid}) was killed by SIGKILL")
        ended["owner"] = "killed by SIGKILL"
    wait_for_end(record.owner, "SIGKILL")
    return ended | end_leftovers(record, say)


def end_leftovers(record: ClusterRecord, say: Say) -> dict[str, str]:
    """Nodes end with their owner by themselves, at least on Linux. Those that run on are ended.
    Raises CommandError."""
    ended = {}
    for node in record.nodes:
        if node.process is not None and node.process.send(signal.SIGKILL):
            wait_for_end(node.process, "SIGKILL")
            say(
                f"{node.name} (pid {node.process.pid}), which its owner left, was killed by SIGKILL"
            )
            ended[node.name] = "killed by SIGKILL"
    return ended


def wait_for_end(process: ProcessIdentity, after: str) -> None:
    """Raises CommandError."""
    deadline = time.monotonic() + _END_S
    while process.is_alive():
        if time.monotonic() > deadline:
            raise CommandError(
                f"process {process.pid} has not ended {_END_S:.0f} s after {after}: the machine "
                "is very busy, or the kernel waits for a disk"
            )
        time.sleep(_LOOK_S)
