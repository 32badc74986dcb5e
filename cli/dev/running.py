"""A cluster's owner as a command: in the foreground of a terminal, or detached from it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import IO, TYPE_CHECKING

from chaos.process_cluster import ProcessCluster
from cli.dev.addresses import how_to_connect
from cli.dev.directory import option_of
from cli.dev.owning import ClusterOwner
from cli.output import CommandError, note
from stele.errors import SteleError

if TYPE_CHECKING:
    from cli.dev.console import DevConsole


def own_in_foreground(
    cluster: ProcessCluster, console: DevConsole | None, arguments: Sequence[str]
) -> int:
    def announce(seconds: float) -> None:
        note(f"stele: {len(cluster.nodes)} nodes serve after {seconds:.1f} s")
        print(how_to_connect(cluster, console, "Ctrl-C stops the cluster."), flush=True)

    def tell(line: str) -> None:
        note(line if line.startswith(" ") else f"stele: {line}")

    asyncio.run(_own(cluster, console, arguments, tell, announce, is_detached=False))
    return 0


def own_detached(
    cluster: ProcessCluster,
    console: DevConsole | None,
    arguments: Sequence[str],
    report_to: int,
) -> int:
    """``report_to``: the pipe on which the command waits that has begun this process."""
    reports = os.fdopen(report_to, "w", encoding="utf-8")
    is_serving = False

    def announce(seconds: float) -> None:
        nonlocal is_serving
        is_serving = True
        how_to_stop = f"stele dev stop{option_of(cluster.directory)} stops the cluster."
        # Not into the log: it may contain a password, and the key of the console.
        text = how_to_connect(cluster, console, how_to_stop)
        _report(reports, {"serves": text, "nodes": len(cluster.nodes), "seconds": seconds})
        _log(f"{len(cluster.nodes)} nodes serve after {seconds:.1f} s")

    try:
        asyncio.run(_own(cluster, console, arguments, _log, announce, is_detached=True))
    except (CommandError, SteleError, OSError) as error:
        if is_serving:
            _log(str(error))
        else:  # the log may be that of another owner, which has the directory
            _report(reports, {"error": str(error)})
        return 1
    if not is_serving:
        _report(reports, {"error": "the cluster was stopped while it started"})
    return 0


async def _own(
    cluster: ProcessCluster,
    console: DevConsole | None,
    arguments: Sequence[str],
    tell: Callable[[str], None],
    announce: Callable[[float], None],
    *,
    is_detached: bool,
) -> None:
    owner = ClusterOwner(cluster, console, tell, arguments, is_detached=is_detached)
    await owner.run(announce)


def _report(pipe: IO[str], what: dict[str, object]) -> None:
    """The command may have ended without waiting."""
    with suppress(BrokenPipeError):
        pipe.write(json.dumps(what) + "\n")
        pipe.close()


def _log(line: str) -> None:
    note(f"{datetime.now().astimezone().isoformat(timespec='milliseconds')} {line}")
