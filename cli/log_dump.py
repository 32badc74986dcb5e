"""``stele log dump``: what is in the files of a log directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Json
from cli.output import CommandError, print_json

app = typer.Typer(help="Look into the files of a log directory.", no_args_is_help=True)


@app.callback()
def callback() -> None:
    """Look into the files of a log directory."""


@app.command()
def dump(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files of a log directory.")
    ],
    records: Annotated[
        bool, typer.Option("--records", help="The records of each batch too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print segments, indexes, snapshots and checkpoints; the name says which kind it is."""
    from storage.dump import dump_file

    dumped = {}
    for file in files:
        if not file.is_file():
            raise CommandError(f"{file} is no file")
        rows = dump_file(str(file), file.read_bytes(), print_records=records)
        if as_json:
            dumped[str(file)] = list(rows)
            continue
        print(f"{file}:")
        for row in rows:
            print("  " + "  ".join(f"{name}={_shown(value)}" for name, value in row.items()))
    if as_json:
        print_json(dumped)


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)
