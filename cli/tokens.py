"""``stele tokens …``: logins that their owner hands on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.command_list import CommandList
from cli.connection import connect
from cli.metadata_history import moment
from cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    Bootstrap,
    Json,
    Local,
    RequestId,
    Timeout,
    request_id_of,
)
from cli.output import note, print_json, print_table

if TYPE_CHECKING:
    from stele.admin.delegation_tokens import DelegationToken

app = typer.Typer(
    cls=CommandList,
    help="Delegation tokens: logins that their owner hands on.",
    no_args_is_help=True,
)

TokenId = Annotated[str, typer.Argument(metavar="ID", help="The id of the token.")]


@app.command("create")
def create(
    owner: Annotated[
        str | None,
        typer.Option("--owner", help="Another owner, for example User:ann.", show_default="you"),
    ] = None,
    renewers: Annotated[
        list[str] | None,
        typer.Option("--renewer", help="Another renewer: User:NAME; may be repeated."),
    ] = None,
    max_lifetime_ms: Annotated[
        int | None,
        typer.Option(
            "--max-lifetime-ms",
            min=1,
            help="How long it lives at most.",
            show_default="as long as the cluster allows",
        ),
    ] = None,
    as_json: Json = False,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Make a token, and print the line of a client's properties by which it logs in.

    The line is a secret: whoever has it works as the owner until the token expires.
    """
    with connect(bootstrap, timeout) as admin:
        token = admin.create_delegation_token(
            owner=owner,
            renewers=renewers or (),
            max_lifetime_ms=max_lifetime_ms,
            request_id=request_id_of(request_id),
        )
    if as_json:
        print_json(_members(token, shows_hmac=True))
        return
    print(f"sasl.jaas.config={token.jaas_config}")
    note(
        f"token {token.token_id} of {token.owner} expires at {moment(token.expiry_ms)} UTC, and "
        f"can be renewed until {moment(token.max_ms)}"
    )


@app.command("list")
def list_tokens(
    owners: Annotated[
        list[str] | None,
        typer.Option("--owner", help="Only of this owner or renewer; may be repeated."),
    ] = None,
    shows_hmac: Annotated[
        bool, typer.Option("--show-hmac", help="Also the secrets, in base64.")
    ] = False,
    as_json: Json = False,
    local: Local = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show the tokens that you own, may renew or have made, and those that ACLs let you see."""
    with connect(bootstrap, timeout) as admin:
        found = admin.describe_delegation_tokens(owners or (), linearizable=not local)
    if as_json:
        print_json([_members(each, shows_hmac=shows_hmac) for each in found])
        return
    print_table(
        (
            "TOKEN",
            "OWNER",
            "REQUESTER",
            "RENEWERS",
            "ISSUED",
            "EXPIRES",
            "RENEWABLE UNTIL",
            *["HMAC"] * shows_hmac,
        ),
        [
            (
                each.token_id,
                each.owner,
                each.requester,
                ",".join(each.renewers) or None,
                moment(each.issue_ms),
                moment(each.expiry_ms),
                moment(each.max_ms),
                *[each.password or None] * shows_hmac,
            )
            for each in found
        ],
    )


@app.command("renew")
def renew(
    token_id: TokenId,
    period_ms: Annotated[
        int | None,
        typer.Option(
            "--period-ms",
            min=1,
            help="How long it is valid from now on.",
            show_default="as long as the cluster allows",
        ),
    ] = None,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Let a token expire later. Only its owner and its renewers may do that."""
    with connect(bootstrap, timeout) as admin:
        expiry_ms = admin.renew_delegation_token(
            token_id, renew_period_ms=period_ms, request_id=request_id_of(request_id)
        )
    note(f"token {token_id} expires at {moment(expiry_ms)} UTC")


@app.command("expire")
def expire(
    token_id: TokenId,
    period_ms: Annotated[
        int | None,
        typer.Option(
            "--period-ms", min=0, help="How long it is still valid.", show_default="not at all"
        ),
    ] = None,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Remove a token. It ends the sessions of clients that are logged in by it."""
    with connect(bootstrap, timeout) as admin:
        expiry_ms = admin.expire_delegation_token(
            token_id, expiry_period_ms=period_ms, request_id=request_id_of(request_id)
        )
    if period_ms is None:
        note(f"token {token_id} lets nobody in any more")
    else:
        note(f"token {token_id} expires at {moment(expiry_ms)} UTC")


def _members(token: DelegationToken, *, shows_hmac: bool) -> dict[str, object]:
    """As JSON, with the secret in base64, as Kafka's tools print it."""
    members: dict[str, object] = asdict(token)
    del members["hmac"]
    return members | ({"hmac": token.password} if shows_hmac else {})
