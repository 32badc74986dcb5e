"""``stele quotas …``: what clients may use of each broker."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any

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

Entity = dict[str, str | None]


def _entity_of(
    *,
    user: Annotated[str | None, typer.Option("--user", help="The user, without User:.")] = None,
    user_default: Annotated[
        bool, typer.Option("--user-default", help="Every user without a quota of its own.")
    ] = False,
    client_id: Annotated[str | None, typer.Option("--client-id", help="The client id.")] = None,
    client_id_default: Annotated[
        bool,
        typer.Option("--client-id-default", help="Every client id without a quota of its own."),
    ] = False,
    ip: Annotated[str | None, typer.Option("--ip", help="The address of the client.")] = None,
    ip_default: Annotated[
        bool, typer.Option("--ip-default", help="Every address without a quota of its own.")
    ] = False,
) -> Entity:
    """The entity that these options name. Raises UsageError."""
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


def _names_entity(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of ``_entity_of``. It takes ``entity`` instead."""
    options = inspect.signature(_entity_of, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        entity = _entity_of(**{name: given.pop(name) for name in options})
        command(entity=entity, **given)

    others = [each for name, each in own.parameters.items() if name != "entity"]
    parameters = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*options.values(), *others)
    ]
    # typer reads both.
    vars(run)["__signature__"] = own.replace(parameters=parameters)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


@app.command("set")
@_names_entity
def set_command(
    entity: Entity,
    settings: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="For example producer_byte_rate=1000000."),
    ],
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Set quotas of users, clients or addresses, and wait until every broker keeps them."""
    from stele.admin.client_quotas import QuotaAlteration, entity_text

    _check_named(entity)
    values = {key: _number(key, value) for key, value in key_values(settings, "").items()}
    with connect(bootstrap, timeout) as admin:
        alteration = QuotaAlteration(entity, values)
        admin.alter_client_quotas([alteration], request_id=request_id_of(request_id))
    for key, value in values.items():
        note(f"{key} of {entity_text(entity)} is {value:.12g} on each broker")


@app.command("remove")
@_names_entity
def remove(
    entity: Entity,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY...]", help="Without it every quota of them.")
    ] = None,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Remove quotas. What is above them in the order of precedence is in force then."""
    from stele.admin.client_quotas import QuotaAlteration, entity_text

    _check_named(entity)
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
@_names_entity
def list_command(
    entity: Entity,
    as_json: Json = False,
    local: Local = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """List quotas, by default all."""
    from stele.admin.client_quotas import QuotaComponent

    components = [
        QuotaComponent(kind, name, "DEFAULT" if name is None else "EXACT")
        for kind, name in entity.items()
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
    user: Annotated[
        str, typer.Argument(metavar="[USER]", help="The user, without User:.", show_default=False)
    ] = "",
    client_id: Annotated[
        str, typer.Option("--client-id", help="The client id.", show_default="none")
    ] = "",
    ip: Annotated[
        str,
        typer.Option("--ip", help="Of this address, in place of a user.", show_default="none"),
    ] = "",
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show which quotas count for a client, and how much of them is used on each broker."""
    from stele.admin.client_quotas import entity_text

    if bool(user) == bool(ip) or (ip and client_id):
        raise UsageError("say of whom: a user, perhaps with --client-id, or --ip alone")
    with connect(bootstrap, timeout) as admin:
        found = admin.explain_client_quotas(user, client_id, ip=ip)
    if as_json:
        print_json(found)
        return
    if not any(found.values()):
        of_user = f"user {user} with client id {client_id!r}"
        note(f"no quota counts for {f'address {ip}' if ip else of_user}")
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


def _check_named(entity: Entity) -> None:
    """Raises UsageError."""
    if not entity:
        raise UsageError(
            "say whose quota: --user, --client-id, --ip, or --user-default and its kin"
        )


def _number(key: str, text: str) -> float:
    """Raises UsageError."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{key}={text}: the value must be a number")
    return number
