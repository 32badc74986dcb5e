"""``stele explain client``: where a client is connected, and what holds it back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.connection import connect
from cli.options import DEFAULT_BOOTSTRAP_SERVER, EXIT_NOT_WELL, Bootstrap, Json, Timeout
from cli.output import note, print_json, say

if TYPE_CHECKING:
    from stele.admin.client_connections import ClientConnection
    from stele.admin.client_quotas import QuotaUsage

_USER = "User:"


def explain_client(
    client_id: Annotated[str, typer.Argument(metavar="ID", help="The client id.")],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> int:
    """Show where a client is connected, what it was denied, the quotas that count for it, and how
    long it waits."""
    with connect(bootstrap, timeout) as admin:
        connections = admin.describe_connections(client_id)
        users = sorted(
            {
                each.principal.removeprefix(_USER)
                for on_broker in connections.values()
                for each in on_broker
            }
        )
        quotas = {user: admin.explain_client_quotas(user, client_id) for user in users}
    is_held_back = any(
        each.is_throttled for on_broker in connections.values() for each in on_broker
    )
    if as_json:
        print_json({"client_id": client_id, "connections": connections, "quotas": quotas})
    elif not users:
        note(f"no client {client_id!r} is connected")
    else:
        for broker_id, on_broker in sorted(connections.items()):
            for each in on_broker:
                say(_connection_line(broker_id, each))
            for line in dict.fromkeys(_denial_lines(broker_id, on_broker)):
                say(line)
        for user, by_broker in quotas.items():
            _print_quotas(user, client_id, by_broker)
    return EXIT_NOT_WELL if is_held_back or not users else 0


def _connection_line(broker_id: int, each: ClientConnection) -> str:
    software = f"{each.software_name} {each.software_version}".strip() or "unnamed software"
    line = (
        f"broker {broker_id}: {each.principal} from {each.peer} on {each.listener} with {software}"
        f" for {each.connected_s:.0f} s; {each.requests} requests ({each.errors} failed), "
        f"{each.bytes_in} bytes in, {each.bytes_out} bytes out"
    )
    if each.throttles:
        line += f"; throttled {each.throttles} times for {each.throttled_s:.1f} s together"
    return line + ("; throttled now" if each.is_throttled else "")


def _denial_lines(broker_id: int, on_broker: Sequence[ClientConnection]) -> Iterator[str]:
    from security.audit_report import DenialKey

    for each in on_broker:
        denials = each.denials
        if denials is None:
            continue
        last = DenialKey(
            each.principal,
            denials.operation,
            denials.resource_type,
            denials.resource_name,
            each.listener,
            denials.rule,
        )
        what = f"{denials.operation} {last.resource}"
        mend = last.remedy if denials.rule else "it is allowed now"
        yield (
            f"broker {broker_id}: {each.principal} was denied something {denials.times} times, "
            f"last {what} {denials.ago_s:.0f} s ago: {mend}"
        )


def _print_quotas(user: str, client_id: str, by_broker: dict[int, list[QuotaUsage]]) -> None:
    from stele.admin.client_quotas import entity_text

    if not any(by_broker.values()):
        say(f"no quota counts for user {user} with client id {client_id!r}")
    for broker_id, quotas in sorted(by_broker.items()):
        for each in quotas:
            say(
                f"broker {broker_id}: {each.key}={each.value:.12g} of {entity_text(each.entity)}, "
                f"{each.usage / each.value:.0%} used; its clients waited {each.throttles} times, "
                f"{each.throttled_s:.1f} s together"
            )
