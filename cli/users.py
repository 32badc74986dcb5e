"""``stele users …``: users who log in by SCRAM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.command_list import CommandList
from cli.connection import connect
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Local, Timeout
from cli.output import CommandError, UsageError, did_you_mean, note, print_json, print_table

app = typer.Typer(
    cls=CommandList, help="Users who log in with a password (SCRAM).", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the user.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        help="A file with the password in its first line; - for standard input. Without it the "
        "password is asked for.",
    ),
]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        help="SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated.",
        show_default="SCRAM-SHA-512",
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations", min=4096, max=16384, help="How costly it is to guess a stolen credential."
    ),
]
Properties = Annotated[
    Path | None,
    typer.Option(
        "--properties",
        metavar="FILE",
        help="Write the user's client properties into this new file. Without --password-file the "
        "password is made, too.",
    ),
]
_DEFAULT_MECHANISM = "SCRAM-SHA-512"
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@app.command("add")
def add(
    name: Name,
    password_file: PasswordFile = None,
    properties: Properties = None,
    mechanisms: Mechanisms = None,
    iterations: Iterations = 4096,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Make a user. It may do nothing until it has rules: stele acls add."""
    chosen = _chosen(mechanisms, default=(_DEFAULT_MECHANISM,))
    if properties is None:
        secret = _password(name, password_file)
        _make(name, secret, chosen, iterations, bootstrap, timeout)
    else:
        from cli.user_properties import made_password, new_file, properties_of_user

        secret = made_password() if password_file is None else _password(name, password_file)
        with new_file(properties, properties_of_user(name, secret, chosen[0])):
            _make(name, secret, chosen, iterations, bootstrap, timeout)
        note(f"{properties} has the properties of its clients, with the password")
    note(f"user {name} is made; stele acls add User:{name} … says what it may do")


@app.command("password")
def password(
    name: Name,
    password_file: PasswordFile = None,
    mechanisms: Mechanisms = None,
    iterations: Iterations = 4096,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Change a user's password. Clients that are logged in stay so until they connect again."""
    _change_password(name, password_file, mechanisms, iterations, bootstrap, timeout)
    note(f"the password of {name} is changed")


@app.command("remove")
def remove(
    name: Name,
    mechanisms: Mechanisms = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Remove a user's credentials, or those of some mechanisms, and so end its sessions. Its rules
    stay."""
    from stele.admin.users import ScramDeletion

    chosen = _chosen(mechanisms, default=())
    with connect(bootstrap, timeout) as admin:
        users = admin.describe_user_scram_credentials()
        if name not in users:
            raise CommandError(f"there is no user {name!r}.{did_you_mean(name, list(users))}")
        has = [each.mechanism for each in users[name]]
        admin.alter_user_scram_credentials(
            deletions=[ScramDeletion(name, each) for each in chosen or has]
        )
    note(f"user {name} cannot log in any more by {', '.join(chosen or has)}")


@app.command("list")
def list_users(
    as_json: Json = False,
    local: Local = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show all users and how they log in."""
    with connect(bootstrap, timeout) as admin:
        users = admin.describe_user_scram_credentials(linearizable=not local)
    if as_json:
        print_json(users)
        return
    print_table(
        ("USER", "MECHANISM", "ITERATIONS"),
        [
            (name, each.mechanism, each.iterations)
            for name, credentials in sorted(users.items())
            for each in credentials
        ],
    )


def _make(
    name: str,
    secret: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    bootstrap: str,
    timeout_s: float,
) -> None:
    from stele.admin.users import ScramUpsertion

    with connect(bootstrap, timeout_s) as admin:
        if name in admin.describe_user_scram_credentials():
            raise CommandError(f"user {name} exists: stele users password {name} changes it")
        admin.alter_user_scram_credentials(
            [ScramUpsertion(name, secret, each, iterations) for each in mechanisms]
        )


def _change_password(
    name: str,
    password_file: Path | None,
    mechanisms: list[str] | None,
    iterations: int,
    bootstrap: str,
    timeout_s: float,
) -> None:
    from stele.admin.users import ScramUpsertion

    chosen = _chosen(mechanisms, default=())
    secret = _password(name, password_file)
    with connect(bootstrap, timeout_s) as admin:
        users = admin.describe_user_scram_credentials()
        if name not in users:
            raise CommandError(f"there is no user {name!r}.{did_you_mean(name, list(users))}")
        chosen = chosen or tuple(each.mechanism for each in users[name])
        admin.alter_user_scram_credentials(
            [ScramUpsertion(name, secret, each, iterations) for each in chosen]
        )


def _chosen(mechanisms: list[str] | None, default: tuple[str, ...]) -> tuple[str, ...]:
    for each in mechanisms or ():
        if each.upper() not in _MECHANISMS:
            raise UsageError(f"--mechanism {each}: give one of {', '.join(_MECHANISMS)}")
    return tuple(dict.fromkeys(each.upper() for each in mechanisms or ())) or default


def _password(user: str, file: Path | None) -> str:
    """Never an argument: other users of the machine see the arguments of a process."""
    if file is None:
        if not sys.stdin.isatty():
            raise UsageError("give --password-file FILE, or - to read standard input")
        return str(typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True))
    text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    found = text.partition("\n")[0].removesuffix("\r")
    if not found:
        raise CommandError(f"{file}: its first line is empty")
    return found
