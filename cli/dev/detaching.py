"""``stele dev --detach``: a process of its own owns the cluster.

The command waits until the cluster serves, and passes on what the owner says. The owner reports on
a pipe: once, a line of JSON, ``{"serves": …}`` or ``{"error": …}``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.dev.cluster_record import LOG_FILE
from cli.interruption import terminable
from cli.output import CommandError, note


def start_detached(directory: Path, arguments: Sequence[str]) -> int:
    """Raises CommandError."""
    directory.mkdir(parents=True, exist_ok=True)
    log_file = directory / LOG_FILE
    reports, theirs = os.pipe()
    with log_file.open("ab") as log:
        owner = subprocess.Popen(
            [sys.executable, "-m", "cli", "dev", *arguments, "--report-to", str(theirs)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[theirs],
            start_new_session=True,  # a Ctrl-C here does not reach it
        )
    os.close(theirs)
    try:
        with terminable(), open(reports, encoding="utf-8") as pipe:
            report = pipe.readline()
    except KeyboardInterrupt:
        note("stele: the start is interrupted; stopping")
        owner.terminate()
        owner.wait()
        raise
    if not report:
        raise CommandError(
            f"the process that was to own the cluster ended with exit code {owner.wait()}; "
            f"its log: {log_file}"
        )
    told = json.loads(report)
    if "error" in told:
        owner.wait()
        raise CommandError(told["error"])
    note(f"stele: {told['nodes']} nodes serve after {told['seconds']:.1f} s")
    print(told["serves"])
    return 0
