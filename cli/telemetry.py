"""``stele telemetry …``: the metrics that clients are asked to push."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.command_list import CommandList
from cli.connection import connect
from cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    Bootstrap,
    Json,
    Local,
    RequestId,
    Timeout,
    request_id_of,
)
from cli.output import CommandError, UsageError, note, print_json, print_table

app = typer.Typer(
    cls=CommandList,
    help="Telemetry: the metrics that clients push to brokers.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the subscription.")]


@app.command("subscribe")
def subscribe(
    name: Name,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", help="A prefix of names of metrics, or * for all. Repeatable."),
    ] = None,
    interval_ms: Annotated[
        int | None, typer.Option("--interval-ms", help="How often they are pushed.")
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option("--match", help="Which clients, for example client_id=orders-.*. Repeatable."),
    ] = None,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Have clients push metrics. What is not given stays as it is."""
    from stele.admin.descriptions import ConfigResource

    changes: dict[str, str | None] = {}
    if metrics:
        changes["metrics"] = ",".join(metrics)
    if interval_ms is not None:
        changes["interval.ms"] = str(interval_ms)
    if match:
        changes["match"] = ",".join(match)
    if not changes:
        raise UsageError("give --metrics, --interval-ms or --match")
    with connect(bootstrap, timeout) as admin:
        admin.alter_configs(
            {ConfigResource.client_metrics(name): changes}, request_id=request_id_of(request_id)
        )
    note(f"subscription {name}: " + ", ".join(f"{key}={value}" for key, value in changes.items()))


@app.command("unsubscribe")
def unsubscribe(
    name: Name,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Delete a subscription. Clients hear of it within its interval."""
    from stele.admin.descriptions import ConfigResource

    resource = ConfigResource.client_metrics(name)
    with connect(bootstrap, timeout) as admin:
        if name not in admin.list_client_metrics():
            raise CommandError(f"there is no subscription {name}")
        keys = [each.name for each in admin.describe_configs([resource])[resource]]
        admin.alter_configs({resource: dict.fromkeys(keys)}, request_id=request_id_of(request_id))
    note(f"there is no subscription {name} any more")


@app.command("list")
def list_command(
    as_json: Json = False,
    local: Local = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """List the subscriptions."""
    from stele.admin.descriptions import ConfigResource

    with connect(bootstrap, timeout) as admin:
        resources = [
            ConfigResource.client_metrics(name)
            for name in admin.list_client_metrics(linearizable=not local)
        ]
        described = admin.describe_configs(resources, linearizable=not local) if resources else {}
    found = {
        resource.name: {entry.name: entry.value for entry in entries}
        for resource, entries in described.items()
    }
    if as_json:
        print_json(found)
        return
    print_table(
        ("NAME", "METRICS", "INTERVAL MS", "MATCH"),
        [
            (name, configs["metrics"], configs["interval.ms"], configs["match"] or "every client")
            for name, configs in found.items()
        ],
    )
