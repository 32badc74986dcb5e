"""``stele profile …``: names for clusters, instead of their addresses."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cli.command_list import CommandList
from cli.options import Json
from cli.output import CommandError, UsageError, print_json, print_table
from cli.profiles import VARIABLE, Profile, read_profiles, write_profiles

app = typer.Typer(
    cls=CommandList,
    help="Names for clusters: their servers, and the client properties that they need.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the profile.")]


@app.command()
def add(
    name: Name,
    servers: Annotated[
        str,
        typer.Option(
            "--bootstrap-server", "-b", help="Kafka ports of some brokers: host:port,host:port"
        ),
    ],
    client_properties: Annotated[
        Path | None,
        typer.Option(
            "--client-properties",
            metavar="FILE",
            help="A file with properties of the client: security.protocol, ssl.*, sasl.*.",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a profile of this name.")
    ] = False,
) -> None:
    """Add a profile. The first one becomes the current one."""
    from stele.config import parse_bootstrap_servers
    from stele.security.properties import security_options

    if not name or name.startswith("-"):
        raise UsageError(f"{name!r} is no name of a profile")
    parse_bootstrap_servers(servers)
    path = None
    if client_properties is not None:
        path = os.path.abspath(client_properties)
        security_options(path)
    known = read_profiles()
    if name in known.profiles and not replace:
        raise CommandError(f"there is a profile {name!r} already; --replace replaces it")
    added = known.with_profile(name, Profile(servers, path))
    if not known.profiles:
        added = type(added)(added.profiles, name)
    write_profiles(added)
    print(f"added profile {name}" + (", which is the current one" if added.current == name else ""))


@app.command("list")
def list_command(as_json: Json = False) -> None:
    """List the profiles; a star is at the current one."""
    known = read_profiles()
    current = os.environ.get(VARIABLE) or known.current
    if as_json:
        print_json(
            [
                {"name": name, "current": name == current, **asdict(each)}
                for name, each in sorted(known.profiles.items())
            ]
        )
        return
    rows = [
        (name + ("*" if name == current else ""), each.bootstrap_servers, each.client_properties)
        for name, each in sorted(known.profiles.items())
    ]
    print_table(("PROFILE", "BOOTSTRAP SERVERS", "CLIENT PROPERTIES"), rows)


@app.command()
def show(name: Name, as_json: Json = False) -> None:
    """Show one profile. The values in its client properties are not shown."""
    profile = read_profiles().named(name)
    if as_json:
        print_json({"name": name, **asdict(profile)})
        return
    print(f"bootstrap servers  {profile.bootstrap_servers}")
    print(f"client properties  {profile.client_properties or 'none'}")


@app.command()
def use(name: Name) -> None:
    """Make a profile the current one, for commands that name neither servers nor a profile."""
    known = read_profiles()
    known.named(name)
    write_profiles(type(known)(known.profiles, name))
    print(f"{name} is the current profile")


@app.command()
def remove(name: Name) -> None:
    """Remove a profile. Its file of client properties stays."""
    write_profiles(read_profiles().without(name))
    print(f"removed profile {name}")
