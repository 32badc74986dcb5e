"""``stele console``: a web page for a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.client_properties import command_security
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap
from cli.output import CommandError, UsageError

if TYPE_CHECKING:
    import socket

    from console.settings import ConsoleSettings
    from stele.security.options import SecurityOptions

DEFAULT_PORT = 8088
DEFAULT_PAGE_TIMEOUT_S = 5.0
_KEY_BYTES = 24


def console(
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; see --listen-elsewhere.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="The port; 0: any free one.")
    ] = DEFAULT_PORT,
    listen_elsewhere: Annotated[
        bool,
        typer.Option(
            "--listen-elsewhere",
            help="Allow a --host that other machines reach. The pages are not encrypted.",
        ),
    ] = False,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="A further name, or NAME:PORT, by which browsers call the console. "
            "May be repeated.",
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change.")] = False,
    reports: Annotated[
        Path | None,
        typer.Option(
            "--reports",
            metavar="DIRECTORY",
            exists=True,
            file_okay=False,
            help="Show the reports of drills in it, such as drill-results.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    page_timeout: Annotated[
        float,
        typer.Option(
            "--page-timeout",
            min=0.1,
            help="Seconds after which a page says that the cluster does not answer.",
        ),
    ] = DEFAULT_PAGE_TIMEOUT_S,
) -> int:
    """Serve a web page that shows and changes the cluster, until Ctrl-C."""
    import asyncio

    check_is_installed()
    from console.app import build
    from console.clients import ConsoleClients
    from console.serving import serve

    listening = _listen(host, port, may_be_elsewhere=listen_elsewhere)
    settings = fresh_settings(
        host,
        listening.getsockname()[1],
        bootstrap,
        command_security(),
        allowed_hosts=allowed_hosts or [],
        is_read_only=read_only,
        timeout_s=page_timeout,
        reports=reports,
    )
    app = build(settings, ConsoleClients(settings))
    print(f"stele: the console of {bootstrap} is at\n\n  {settings.address}\n", flush=True)
    print("Its address contains the key to it. Ctrl-C stops it.", flush=True)
    asyncio.run(serve(app, listening))
    return 0


def _listen(host: str, port: int, *, may_be_elsewhere: bool) -> socket.socket:
    """Raises UsageError, CommandError."""
    from console.serving import ListenError, listen
    from console.settings import is_loopback

    if not is_loopback(host) and not may_be_elsewhere:
        raise UsageError(
            f"--host {host}: other machines would reach the console and use the cluster as you. "
            "Give --listen-elsewhere if they may"
        )
    try:
        return listen(host, port)
    except ListenError as error:
        raise CommandError(str(error)) from None


def check_is_installed() -> None:
    """Raises CommandError."""
    import importlib.util

    missing = [
        each
        for each in ("starlette", "uvicorn", "jinja2")
        if importlib.util.find_spec(each) is None
    ]
    if missing:
        raise CommandError(
            f"the console needs the packages {', '.join(missing)}: pip install 'stele-log[console]'"
        )


def fresh_settings(
    host: str,
    port: int,
    bootstrap: str,
    security: SecurityOptions,
    *,
    allowed_hosts: Sequence[str] = (),
    is_read_only: bool = False,
    timeout_s: float = DEFAULT_PAGE_TIMEOUT_S,
    reports: Path | None = None,
) -> ConsoleSettings:
    """Settings with a key that is new. Raises ConfigError."""
    import secrets

    from console.settings import LOOPBACK_NAMES, ConsoleSettings, host_in_address, is_any_address
    from controller.whatif import what_if
    from stele.config import parse_bootstrap_servers

    parse_bootstrap_servers(bootstrap)
    # Browsers never call a host 0.0.0.0: the first name is in the address that is printed.
    hosts = allowed_hosts if is_any_address(host) else [host, *allowed_hosts]
    names = [*map(host_in_address, hosts), *LOOPBACK_NAMES]
    return ConsoleSettings(
        bootstrap_servers=bootstrap,
        access_key=secrets.token_urlsafe(_KEY_BYTES),
        form_token=secrets.token_urlsafe(_KEY_BYTES),
        port=port,
        foresee=what_if,
        host_names=tuple(dict.fromkeys(names)),
        proxied_hosts=(*map(str.lower, allowed_hosts), *map(host_in_address, allowed_hosts)),
        is_read_only=is_read_only,
        timeout_s=timeout_s,
        reports=reports,
        security=security,
    )
