"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.output import note

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="STELE_BOOTSTRAP_SERVER",
        help="Kafka ports of some brokers: host:port,host:port",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds to keep trying before giving up.")
]


_told: list[str] = []  # the reason told last


def tell_wait(reason: str) -> None:
    """A client's ``on_wait``: why it waits, for the person in front of it; each reason once."""
    if _told[-1:] != [reason]:
        _told[:] = [reason]
        note(f"stele: {reason}")
