"""``stele certs``: certificates for clusters that have no authority of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.command_list import CommandList
from cli.options import EXIT_NOT_WELL, Json
from cli.output import CommandError, UsageError, did_you_mean, note, print_json, print_table

if TYPE_CHECKING:
    from datetime import datetime

    from node.certificates import CertificateDirectory
    from security.authority import CertificateFacts, Subject

app = typer.Typer(cls=CommandList, help="Make, renew and show certificates.", no_args_is_help=True)

Directory = Annotated[Path, typer.Option("--dir", help="Directory of the certificates.")]
Nodes = Annotated[
    list[str] | None,
    typer.Option(
        "--node",
        metavar="ID=HOST,HOST",
        help="A node, and the names and addresses by which it is reached; may be repeated.",
    ),
]
Users = Annotated[
    list[str] | None,
    typer.Option("--user", metavar="NAME", help="A user; may be repeated."),
]
Days = Annotated[int, typer.Option("--days", min=1, help="How long the certificates are valid.")]
DEFAULT_DIRECTORY = Path("certs")
DEFAULT_DAYS = 365  # as of security.authority


@app.command("create")
def create(
    nodes: Nodes = None,
    users: Users = None,
    directory: Directory = DEFAULT_DIRECTORY,
    days: Days = DEFAULT_DAYS,
    missing: Annotated[
        bool, typer.Option("--missing", help="Leave files that are there already as they are.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make certificates for nodes and users, and an authority if there is none.

    A file node-1.pem is the keystore of node 1 (ssl.keystore.location), user-ann.pem that of the
    user ann, and ca.pem the truststore of all.
    """
    from node.certificates import CertificateDirectory
    from security.authority import AuthorityError, Subject

    try:
        subjects = [*map(_node, nodes or ()), *map(Subject.user, users or ())]
    except AuthorityError as error:
        raise UsageError(str(error)) from error
    found = CertificateDirectory(directory)
    if not subjects and found.exists():
        raise UsageError("give --node ID=HOST or --user NAME: there is an authority already")
    taken = [each for each in subjects if found.keystore(each).exists()]
    if missing:
        subjects = [each for each in subjects if each not in taken]
    elif taken:
        first = taken[0]
        only = f"--user {first.name}" if first.node_id is None else f"--node {first.node_id}"
        raise CommandError(
            f"{found.keystore(first)} exists: stele certs renew {only} makes a new one"
        )
    now = _now()
    if not found.exists():
        found.make_authority(now)
    _issue(found, subjects, now, days, as_json)


@app.command("renew")
def renew(
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            metavar="ID[=HOST,HOST]",
            help="Only this node, perhaps with other names; may be repeated.",
        ),
    ] = None,
    users: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="NAME", help="Only this user; may be repeated."),
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
    days: Days = DEFAULT_DAYS,
    authority: Annotated[
        bool,
        typer.Option(
            "--authority",
            help="First step of a new authority: it is believed beside the one before, and the "
            "next stele certs renew issues with it.",
        ),
    ] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget-earlier",
            help="Last step of a new authority: believe no other, once everybody has a certificate "
            "of it.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Make new keys and certificates for all that have one here, or for some of them.

    A node that runs takes its new certificate by itself.
    """
    from node.certificates import CertificateDirectory

    if authority and forget:
        raise UsageError("--authority is the first step, --forget-earlier the last: not at once")
    if (authority or forget) and (nodes or users):
        raise UsageError("a new authority is for all: leave --node and --user out")
    found = CertificateDirectory(directory)
    found.authority()
    if forget:
        count = found.forget_earlier()
        note(f"{found.truststore}: {count} earlier authorities are forgotten")
        return
    if authority:
        found.make_authority(_now())
        note(f"{found.truststore} has a new authority, and the one before")
        note("once all nodes and clients have read it: stele certs renew")
        return
    _issue(found, _chosen(found, nodes or (), users or ()), _now(), days, as_json)


@app.command("show")
def show(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Files with certificates in PEM, or directories of them."),
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
    soon: Annotated[
        int, typer.Option("--soon", min=0, help="Days before its end at which one ends soon.")
    ] = 30,
    as_json: Json = False,
) -> int:
    """Show certificates; exit code 3 if one has expired or ends soon."""
    from node.certificates import CertificateDirectory, certificates_of

    files: list[Path] = []
    for path in paths or [directory]:
        files += CertificateDirectory(path).files() if path.is_dir() else [path]
    now = _now()
    rows = [(file, each) for file in files for each in certificates_of(file)]
    if as_json:
        print_json([_as_json(file, each, now) for file, each in rows])
    else:
        print_table(
            ("FILE", "SUBJECT", "NAMES", "UNTIL", "DAYS LEFT"),
            [
                (
                    str(file),
                    each.subject,
                    ", ".join(each.names) or None,
                    f"{each.not_after:%Y-%m-%d}",
                    each.days_left(now),
                )
                for file, each in rows
            ],
        )
    ends = [each for _, each in rows if each.days_left(now) < soon]
    return EXIT_NOT_WELL if ends else 0


def _issue(
    directory: CertificateDirectory,
    subjects: list[Subject],
    now: datetime,
    days: int,
    as_json: bool,
) -> None:
    made = [directory.issue(each, now, days) for each in subjects]
    if as_json:
        print_json({"truststore": str(directory.truststore), "keystores": [str(p) for p in made]})
        return
    for path in made:
        note(f"{path} is valid for {days} days")
    note(f"{directory.truststore} is what clients and nodes believe (ssl.truststore.location)")


def _chosen(
    directory: CertificateDirectory, nodes: Sequence[str], users: Sequence[str]
) -> list[Subject]:
    """Those that are to be renewed: all, or the named ones. Raises CommandError, UsageError."""
    there = {each.name: each for each in directory.subjects()}
    if not nodes and not users:
        return list(there.values())
    chosen: list[Subject] = []
    for text in nodes:
        name = f"node-{text.partition('=')[0]}"
        chosen.append(_node(text) if "=" in text else _renewed(there, name))
        if name not in there:
            raise CommandError(_absent(name, there))
    return [*chosen, *(_renewed(there, name) for name in users)]


def _renewed(there: Mapping[str, Subject], name: str) -> Subject:
    if name not in there:
        raise CommandError(_absent(name, there))
    return there[name]


def _absent(name: str, there: Mapping[str, Subject]) -> str:
    return (
        f"there is no certificate of {name!r}.{did_you_mean(name, there)} "
        "stele certs create makes one"
    )


def _node(text: str) -> Subject:
    from security.authority import Subject

    number, equals, hosts = text.partition("=")
    names = [each.strip() for each in hosts.split(",") if each.strip()]
    if not equals or not number.isdecimal() or not names:
        raise UsageError(f"--node {text!r} is not of the form ID=HOST,HOST")
    return Subject.node(int(number), names)


def _as_json(file: Path, facts: CertificateFacts, now: datetime) -> dict[str, object]:
    return {
        "file": str(file),
        "subject": facts.subject,
        "issuer": facts.issuer,
        "names": list(facts.names),
        "not_before": facts.not_before.isoformat(),
        "not_after": facts.not_after.isoformat(),
        "days_left": facts.days_left(now),
        "sha256": facts.fingerprint,
        "is_authority": facts.is_authority,
    }


def _now() -> datetime:
    from datetime import UTC, datetime

    return datetime.now(UTC)
