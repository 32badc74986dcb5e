"""``stele dev``: begin a cluster of processes on this machine, in the foreground or detached."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.dev.detaching import start_detached
from cli.dev.directory import DEFAULT_DIRECTORY
from cli.output import UsageError, key_values

if TYPE_CHECKING:
    from cli.dev.console import DevConsole

DEFAULT_PORT_BASE = 9092
CONSOLE_OFFSET = 400
"""The port of the console, above the first of the Kafka ports."""
DEFAULT_NODES = 3
"""Controllers, and brokers."""
DEFAULT_SETTINGS = {
    # Spark's exactly-once sink writes in prepared transactions.
    "transaction.two.phase.commit.enable": "true",
}
"""Every node has these settings, unless ``--set`` says something else."""


Controllers = Annotated[
    int | None,
    typer.Option(
        "--controllers",
        min=1,
        show_default="3",
        help="Number of controllers, which hold the metadata.",
    ),
]
Brokers = Annotated[
    int | None,
    typer.Option(
        "--brokers",
        min=1,
        show_default="3",
        help="Number of brokers, which hold the records.",
    ),
]
ClusterDirectory = Annotated[
    Path,
    typer.Option("--dir", help="Directory of the nodes. A cluster in it is started again."),
]
Combined = Annotated[
    bool, typer.Option("--combined", help="Run one node that is controller and broker.")
]
BasePort = Annotated[
    int,
    typer.Option(
        "--base-port",
        min=0,
        max=65000,
        help="Kafka ports from here, gRPC 100 above, controllers 200, metrics 300, "
        "the console 400; 0: any.",
    ),
]
Secure = Annotated[
    bool,
    typer.Option(
        "--secure",
        help="With TLS, users and access rules, which are made at the first start.",
    ),
]
Console = Annotated[
    bool,
    typer.Option(
        "--console",
        help="Serve web pages about the cluster, too (see stele console), until it stops.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting for every node."),
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach",
        help="Return when the cluster serves; stele dev stop ends it.",
    ),
]
ReportTo = Annotated[
    int | None,
    typer.Option("--report-to", hidden=True, help="Of --detach: the pipe to its command."),
]


def dev(
    context: typer.Context,
    controllers: Controllers = None,
    brokers: Brokers = None,
    directory: ClusterDirectory = DEFAULT_DIRECTORY,
    combined: Combined = False,
    base_port: BasePort = DEFAULT_PORT_BASE,
    secure: Secure = False,
    console: Console = False,
    settings: Settings = None,
    detach: Detach = False,
    report_to: ReportTo = None,
) -> int:
    """Run a cluster of processes until Ctrl-C, or with --detach until stele dev stop.

    What it holds stays in --dir.
    """
    if context.invoked_subcommand is not None:
        _check_nothing_given(context)
        return 0
    from cli.console import check_is_installed
    from runtime.config.node import check_key

    if combined and (controllers is not None or brokers is not None):
        raise UsageError("--combined is one node: leave --controllers and --brokers out")
    if console:
        check_is_installed()
    chosen = key_values(settings or (), "--set")
    for name in chosen:
        check_key(name)
    chosen_nodes = None if combined else (controllers or DEFAULT_NODES, brokers or DEFAULT_NODES)
    arguments = _arguments(directory, chosen_nodes, base_port, secure, console, settings or ())
    if detach:
        return start_detached(directory, arguments)
    from chaos.process_cluster import ProcessCluster

    cluster = ProcessCluster(
        directory,
        controllers=1 if chosen_nodes is None else chosen_nodes[0],
        brokers=1 if chosen_nodes is None else chosen_nodes[1],
        combined=combined,
        base_port=base_port or None,
        settings={**DEFAULT_SETTINGS, **chosen},
        is_secure=secure,
    )
    from cli.dev.running import own_detached, own_in_foreground

    beside = _console(base_port) if console else None
    if report_to is not None:
        return own_detached(cluster, beside, arguments, report_to)
    return own_in_foreground(cluster, beside, arguments)


def _console(base_port: int) -> DevConsole:
    """Its packages need not be installed, so its code is imported only where it is asked for."""
    from cli.dev.console import DevConsole

    return DevConsole(base_port + CONSOLE_OFFSET if base_port else 0)


def _arguments(
    directory: Path,
    nodes: tuple[int, int] | None,
    base_port: int,
    secure: bool,
    console: bool,
    settings: Sequence[str],
) -> list[str]:
    """The arguments with which ``stele dev`` starts the same cluster, from any directory."""
    arguments = ["--dir", str(directory.resolve()), "--base-port", str(base_port)]
    if nodes is None:
        arguments.append("--combined")
    else:
        arguments += ["--controllers", str(nodes[0]), "--brokers", str(nodes[1])]
    if secure:
        arguments.append("--secure")
    if console:
        arguments.append("--console")
    for setting in settings:
        arguments += ["--set", setting]
    return arguments


def _check_nothing_given(context: typer.Context) -> None:
    """Raises UsageError: otherwise `stele dev --dir D stop` would stop another cluster."""
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if source is not None and source.name == "COMMANDLINE":
            command = context.invoked_subcommand
            raise UsageError(
                f"{parameter.opts[0]} before {command} is about starting a cluster: "
                f"stele dev {command} --help shows the options of {command}"
            )
