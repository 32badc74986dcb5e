"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.output import UsageError, note

REQUEST_ID_BYTES = 16  # as of stele.admin.requests

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
    float, typer.Option("--timeout", min=0.1, help="Seconds after which the command gives up.")
]

Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-X",
        metavar="NAME=VALUE",
        help="A property of the client by Kafka's name, such as linger.ms=0; may be repeated.",
    ),
]

Local = Annotated[
    bool,
    typer.Option(
        "--local", help="Show what one broker knows, without asking the active controller."
    ),
]
RequestId = Annotated[
    str | None,
    typer.Option(
        "--request-id",
        metavar="HEX",
        help=(
            "Repeat a change whose outcome is unknown, by the id of its request. It takes effect "
            "at most once."
        ),
    ),
]


def broker_ids_of(text: str) -> list[int]:
    """The ids of ``--broker-list``. Raises CommandError."""
    try:
        ids = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--broker-list {text!r} is not of the form 1,2,3") from None
    if len(set(ids)) < len(ids):
        raise UsageError(f"--broker-list {text!r} names a broker twice")
    return ids


def request_id_of(text: str | None) -> bytes | None:
    """The bytes of ``--request-id``. Raises CommandError."""
    if text is None:
        return None
    try:
        request_id = bytes.fromhex(text)
    except ValueError:
        request_id = b""
    if len(request_id) != REQUEST_ID_BYTES:
        raise UsageError(f"--request-id {text!r} is not {2 * REQUEST_ID_BYTES} hexadecimal digits")
    return request_id


EXIT_NOT_WELL = 3
"""The exit status of commands that answer a question, if the answer is bad news."""

_told: list[str] = []  # the reason told last


def tell_wait(reason: str) -> None:
    """A client's ``on_wait``: why it waits, for the person in front of it; each reason once."""
    if _told[-1:] != [reason]:
        _told[:] = [reason]
        note(f"stele: {reason}")
