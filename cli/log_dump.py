"""``stele log dump``: what is in the files of a log directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.command_list import CommandList
from cli.options import Json
from cli.output import CommandError, UsageError, print_json

if TYPE_CHECKING:
    from stele.wire.batch import Record

app = typer.Typer(
    cls=CommandList, help="Look into the files of a log directory.", no_args_is_help=True
)


@app.callback()
def callback() -> None:
    """Look into the files of a log directory."""


@app.command()
def dump(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files of a log directory.")
    ],
    records: Annotated[
        bool, typer.Option("--records", help="Print the records of each batch, too.")
    ] = False,
    offsets_decoder: Annotated[
        bool,
        typer.Option(
            "--offsets-decoder",
            help="The files are of __consumer_offsets: print what their records say.",
        ),
    ] = False,
    transactions_decoder: Annotated[
        bool,
        typer.Option(
            "--transaction-log-decoder",
            help="The files are of __transaction_state: print what their records say.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Print segments, indexes, snapshots and checkpoints; the name says which kind it is."""
    from storage.dump import dump_file

    decode_record = _decoder(offsets=offsets_decoder, transactions=transactions_decoder)
    dumped = {}
    for file in files:
        if not file.is_file():
            raise CommandError(f"{file} is no file")
        rows = dump_file(
            str(file),
            file.read_bytes(),
            print_records=records or decode_record is not None,
            decode_record=decode_record or _without_secrets(file),
        )
        if as_json:
            dumped[str(file)] = list(rows)
            continue
        print(f"{file}:")
        for row in rows:
            print("  " + "  ".join(f"{name}={_shown(value)}" for name, value in row.items()))
    if as_json:
        print_json(dumped)


def _decoder(*, offsets: bool, transactions: bool) -> Callable[[Record], dict[str, Any]] | None:
    if offsets and transactions:
        raise UsageError("a file is read with one decoder")
    if offsets:
        from cli.offsets_decoder import decode_record

        return decode_record
    if transactions:
        from cli import transactions_decoder

        return transactions_decoder.decode_record
    return None


def _without_secrets(file: Path) -> Callable[[Record], dict[str, Any]] | None:
    """Hides the credentials that the metadata log has; None for other files."""
    from metadata.records import MetadataError
    from metadata.secrets import without_secrets
    from storage.directory_names import METADATA_TOPIC

    if file.suffix != ".checkpoint" and not file.absolute().parent.name.startswith(METADATA_TOPIC):
        return None

    def decode_record(record: Record) -> dict[str, Any]:
        try:
            return {"payload": record.value and without_secrets(bytes(record.value))}
        except MetadataError as error:  # what cannot be read may have a secret
            return {"payload": None, "error": str(error)}

    return decode_record


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, dict) and value:
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
