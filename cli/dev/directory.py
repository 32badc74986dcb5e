"""``--dir`` of the commands about a cluster that ``stele dev`` has begun, and its nodes' names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from cli.dev.cluster_record import read_record
from cli.output import CommandError

DEFAULT_DIRECTORY: Final = Path("stele-dev")

Directory = Annotated[Path, typer.Option("--dir", help="Directory of the cluster.")]


def option_of(directory: Path) -> str:
    """What follows a command so that it means this directory, from where it is run now."""
    import shlex

    if directory.resolve() == DEFAULT_DIRECTORY.resolve():
        return ""
    return f" --dir {shlex.quote(str(directory))}"


def complete_node(ctx: typer.Context, incomplete: str) -> list[str]:
    try:
        record = read_record(Path(ctx.params.get("directory") or DEFAULT_DIRECTORY))
    except (CommandError, OSError):
        return []
    names = () if record is None else (each.name for each in record.nodes)
    return [name for name in names if name.startswith(incomplete)]
