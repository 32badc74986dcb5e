"""``stele clients``: the clients of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.connection import connect
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Timeout
from cli.output import print_json, print_table


def clients(
    client_id: Annotated[
        str | None, typer.Option("--client-id", help="Only connections of this client.")
    ] = None,
    principal: Annotated[
        str | None, typer.Option("--principal", help="Only those of this one, as User:ann.")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show who is connected to each broker, with which software, and what it has done so far.

    Lag and latency are the worst that clients of the principal and client id push (KIP-714).
    """
    with connect(bootstrap, timeout) as admin:
        found = admin.describe_connections(client_id)
    if principal is not None:
        found = {
            broker_id: [each for each in connections if each.principal == principal]
            for broker_id, connections in found.items()
        }
    if as_json:
        print_json(found)
        return
    print_table(
        (
            *("BROKER", "CLIENT-ID", "PRINCIPAL", "SOFTWARE", "LISTENER", "FROM", "FOR S"),
            *("IN", "OUT", "REQUESTS", "ERRORS", "DENIED", "THROTTLED S", "LAG", "LATENCY MS"),
        ),
        [
            (
                broker_id,
                each.client_id,
                each.principal,
                f"{each.software_name} {each.software_version}".strip(),
                each.listener,
                each.peer,
                f"{each.connected_s:.0f}",
                each.bytes_in,
                each.bytes_out,
                each.requests,
                each.errors,
                0 if each.denials is None else each.denials.times,
                f"{each.throttled_s:.1f}",
                each.lag,
                None if each.latency_ms is None else f"{each.latency_ms:.3g}",
            )
            for broker_id, connections in sorted(found.items())
            for each in connections
        ],
    )
