"""``stele quotas …``: what clients may use of each broker."""

from __future__ import annotations

import math
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
from cli.output import CommandError, UsageError, key_values, note, print_json, print_table

app = typer.Typer(
    cls=CommandList,
    help="Quotas: what clients may use of each broker.",
    no_args_is_help=True,
)

User = Annotated[str | None, typer.Option("--user", help="The user, without User:.")]
UserDefault = Annotated[
    bool, typer.Option("--user-default", help="Every user without a quota of its own.")
]
ClientId = Annotated[str | None, typer.Option("--client-id", help="The client id.")]
ClientIdDefault = Annotated[
    bool, typer.Option("--client-id-default", help="Every client id without a quota of its own.")
]
Ip = Annotated[str | None, typer.Option("--ip", help="The address of the client.")]
IpDefault = Annotated[
    bool, typer.Option("--ip-default", help="Every address without a quota of its own.")
]
Entity = dict[str, str | None]


@app.command("set")
def set_command(
    settings: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="For example producer_byte_rate=1000000."),
    ],
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_id_default: ClientIdDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Set quotas of users, clients or addresses, and wait until every broker keeps them."""
    from stele.admin.client_quotas import QuotaAlteration, entity_text

    entity = _entity_of(user, user_default, client_id, client_id_default, ip, ip_default)
    values = {key: _number(key, value) for key, value in key_values(settings, "").items()}
    with connect(bootstrap, timeout) as admin:
        alteration = QuotaAlteration(entity, values)
        admin.alter_client_quotas([alteration], request_id=request_id_of(request_id))
    for key, value in values.items():
        note(f"{key} of {entity_text(entity)} is {value:.12g} on each broker")


@app.command("remove")
def remove(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY...]", help="Without it every quota of them.")
    ] = None,
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_id_default: ClientIdDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Remove quotas. What is above them in the order of precedence is in force then."""
    from stele.admin.client_quotas import QuotaAlteration, entity_text

    entity = _entity_of(user, user_default, client_id, client_id_default, ip, ip_default)
    with connect(bootstrap, timeout) as admin:
        if not keys:
            every = admin.describe_client_quotas()
            keys = [key for each in every if each.entity == entity for key in each.values]
        if not keys:
            raise CommandError(f"{entity_text(entity)} has no quota")
        alteration = QuotaAlteration(entity, dict.fromkeys(keys))
        admin.alter_client_quotas([alteration], request_id=request_id_of(request_id))
    note(f"{entity_text(entity)} has no {', '.join(keys)} any more")


@app.command("list")
def list_command(
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_id_default: ClientIdDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    as_json: Json = False,
    local: Local = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """List quotas, by default all."""
    from stele.admin.client_quotas import QuotaComponent

    wanted = _parts_of(user, user_default, client_id, client_id_default, ip, ip_default)
    components = [
        QuotaComponent(kind, name, "DEFAULT" if name is None else "EXACT")
        for kind, name in wanted.items()
    ]
    with connect(bootstrap, timeout) as admin:
        found = admin.describe_client_quotas(components, linearizable=not local)
    if as_json:
        print_json(found)
        return
    print_table(
        ("USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"),
        [
            (
                *(_shown(each.entity, kind) for kind in ("user", "client-id", "ip")),
                key,
                f"{it:.12g}",
            )
            for each in found
            for key, it in each.values.items()
        ],
    )


@app.command("why")
def why(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user, without User:.")],
    client_id: Annotated[
        str, typer.Option("--client-id", help="The client id.", show_default="none")
    ] = "",
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show which quotas count for a client, and how much of them is used on each broker."""
    from stele.admin.client_quotas import entity_text

    with connect(bootstrap, timeout) as admin:
        found = admin.explain_client_quotas(user, client_id)
    if as_json:
        print_json(found)
        return
    if not any(found.values()):
        note(f"no quota counts for user {user} with client id {client_id!r}")
        return
    print_table(
        ("BROKER", "QUOTA", "OF", "SHARED BY ONE", "VALUE", "USED", "WAITS", "WAITED S"),
        [
            (
                broker_id,
                each.key,
                entity_text(each.entity),
                " and ".join(each.shared_by),
                f"{each.value:.12g}",
                "-" if each.key == "controller_mutation_rate" else f"{each.usage / each.value:.0%}",
                each.throttles,
                f"{each.throttled_s:.1f}",
            )
            for broker_id, quotas in sorted(found.items())
            for each in quotas
        ],
    )


def _shown(entity: Entity, kind: str) -> str | None:
    if kind not in entity:
        return None
    name = entity[kind]
    return "<default>" if name is None else name


def _parts_of(
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_id_default: bool,
    ip: str | None,
    ip_default: bool,
) -> Entity:
    """Raises UsageError."""
    entity: Entity = {}
    for kind, name, is_default in (
        ("user", user, user_default),
        ("client-id", client_id, client_id_default),
        ("ip", ip, ip_default),
    ):
        if name is not None and is_default:
            raise UsageError(f"give --{kind} or --{kind}-default, not both")
        if name is not None or is_default:
            entity[kind] = name
    return entity


def _entity_of(
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_id_default: bool,
    ip: str | None,
    ip_default: bool,
) -> Entity:
    """Raises UsageError."""
    entity = _parts_of(user, user_default, client_id, client_id_default, ip, ip_default)
    if not entity:
        raise UsageError(
            "say whose quota: --user, --client-id, --ip, or --user-default and its kin"
        )
    return entity


def _number(key: str, text: str) -> float:
    """Raises UsageError."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{key}={text}: the value must be a number")
    return number
