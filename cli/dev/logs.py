"""``stele dev logs``: what the nodes of a cluster, and its detached owner, have said."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.dev.cluster_record import LOG_FILE, ClusterRecord, known_record
from cli.dev.directory import DEFAULT_DIRECTORY, Directory, complete_node
from cli.output import say

OWNER: Final = "dev"
"""The owner's log has this name beside the logs of nodes."""
_LOOK_S: Final = 0.2
_BLOCK_BYTES: Final = 1 << 16


def show_logs(
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]",
            help="Id or name of a node (default: all nodes, and the owner if it is detached).",
            autocompletion=complete_node,
        ),
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Number of last lines of each log.")
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new lines until Ctrl-C.")
    ] = False,
) -> None:
    """Show the last lines of the nodes' logs, whether or not the cluster runs."""
    logs = _logs_of(directory, known_record(directory), node)
    width = max(map(len, logs), default=0)
    tails = {name: LogTail(path, lines) for name, path in logs.items()}
    while True:
        for name, tail in tails.items():
            prefix = "" if node is not None else f"{name:<{width}} | "
            for line in tail.new_lines():
                say(prefix + line)
            if not follow and tail.unfinished:
                say(prefix + tail.unfinished)
        if not follow:
            return
        sys.stdout.flush()
        time.sleep(_LOOK_S)


def _logs_of(directory: Path, record: ClusterRecord, node: str | None) -> dict[str, Path]:
    if node == OWNER:
        return {OWNER: directory / LOG_FILE}
    if node is not None:
        found = record.node(node)
        return {found.name: Path(found.log_file)}
    logs = {each.name: Path(each.log_file) for each in record.nodes}
    return logs | ({OWNER: directory / LOG_FILE} if record.is_detached else {})


class LogTail:
    """A file that grows. The first lines that it gives are the last that the file has."""

    def __init__(self, path: Path, lines: int) -> None:
        self._path = path
        self._begin = 0
        self._rest = b""
        if path.exists():
            self._begin = _begin_of_last(path, lines)

    @property
    def unfinished(self) -> str:
        """The line that is being written."""
        return self._rest.decode(errors="replace")

    def new_lines(self) -> list[str]:
        """Whole ones; a line that is being written comes when it is written."""
        try:
            with self._path.open("rb") as log:
                log.seek(self._begin)
                data = log.read()
        except FileNotFoundError:
            return []
        self._begin += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in whole]


def _begin_of_last(path: Path, lines: int) -> int:
    """Where the last lines of a file begin, without reading what is before them."""
    if not lines:
        return path.stat().st_size
    with path.open("rb") as log:
        begin = end = log.seek(0, 2)
        found = 0
        while begin > 0:
            block = min(_BLOCK_BYTES, begin)
            begin = log.seek(begin - block)
            data = log.read(block)
            at = len(data)
            while (at := data.rfind(b"\n", 0, at)) >= 0:
                if begin + at + 1 == end:
                    continue  # the end of the last line
                if found + 1 >= lines:
                    return begin + at + 1
                found += 1
    return 0
