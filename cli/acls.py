"""``stele acls …``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.command_list import CommandList
from cli.connection import connect
from cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    EXIT_NOT_WELL,
    Bootstrap,
    Json,
    Local,
    RequestId,
    Timeout,
    request_id_of,
)
from cli.output import UsageError, print_json, print_table

if TYPE_CHECKING:
    from stele.admin.acls import Acl, AclFilter

app = typer.Typer(
    cls=CommandList,
    help="Access control lists: who may do what, and why.",
    no_args_is_help=True,
)

Principal = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help="Type:name, for example User:orders-app.")
]
Operations = Annotated[
    str, typer.Argument(metavar="OPERATION,...", help="Kafka's names, for example READ,DESCRIBE.")
]
Resource = Annotated[
    str,
    typer.Argument(
        metavar="RESOURCE",
        help="topic:NAME, group:NAME, transactional-id:NAME, user:TYPE:NAME, "
        "delegation-token:ID or cluster. The name * is every one.",
    ),
]
Prefixed = Annotated[
    bool, typer.Option("--prefixed", help="Every resource whose name begins with NAME.")
]
Host = Annotated[str | None, typer.Option("--host", help="The address of the client.")]
OfPrincipal = Annotated[
    str | None, typer.Option("--principal", help="Only rules about this principal.")
]
OfOperation = Annotated[
    str | None, typer.Option("--operation", help="Only rules about this operation.")
]
OfResource = Annotated[
    str | None,
    typer.Option(
        "--resource", metavar="TYPE[:NAME]", help="Only rules about this resource, by its name."
    ),
]
Touching = Annotated[
    bool,
    typer.Option(
        "--touching", help="With --resource: also rules with a prefix or * that include it."
    ),
]


@app.command()
def add(
    principal: Principal,
    operations: Operations,
    resource: Resource,
    deny: Annotated[bool, typer.Option("--deny", help="Forbid it instead.")] = False,
    prefixed: Prefixed = False,
    host: Host = None,
    as_json: Json = False,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Allow or forbid something, and wait until every broker goes by it."""
    from stele.admin.acls import Acl

    kind, name = _resource_of(resource)
    rules = [
        Acl(
            principal,
            operation.strip().upper(),
            kind,
            name,
            "PREFIXED" if prefixed else "LITERAL",
            host or "*",
            "DENY" if deny else "ALLOW",
        )
        for operation in operations.split(",")
    ]
    with connect(bootstrap, timeout) as admin:
        admin.create_acls(rules, request_id=request_id_of(request_id))
    if as_json:
        print_json(rules)
        return
    for rule in rules:
        print(f"in force: {rule}")


@app.command("list")
def list_command(
    principal: OfPrincipal = None,
    operation: OfOperation = None,
    resource: OfResource = None,
    touching: Touching = False,
    host: Host = None,
    as_json: Json = False,
    local: Local = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """List rules."""
    wanted = _filter_of(principal, operation, resource, touching, host)
    with connect(bootstrap, timeout) as admin:
        rules = admin.describe_acls(wanted, linearizable=not local)
    _show(rules, as_json)


@app.command()
def remove(
    principal: OfPrincipal = None,
    operation: OfOperation = None,
    resource: OfResource = None,
    touching: Touching = False,
    host: Host = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove every rule.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed.")] = False,
    as_json: Json = False,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Remove the rules that all given options match."""
    is_narrowed = any((principal, operation, resource, host))
    if is_narrowed == everything:
        raise UsageError("say which rules: --principal, --operation, --resource, --host, or --all")
    wanted = _filter_of(principal, operation, resource, touching, host)
    with connect(bootstrap, timeout) as admin:
        if dry_run:
            rules = admin.describe_acls(wanted)
        else:
            rules = admin.delete_acls([wanted], request_id=request_id_of(request_id))
    _show(rules, as_json)


@app.command("test")
def decide(
    principal: Principal,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="For example READ.")],
    resource: Resource,
    host: Host = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> int:
    """Tell whether a principal may do something, and by which rule. The exit status is 3 if not."""
    kind, name = _resource_of(resource)
    with connect(bootstrap, timeout) as admin:
        verdict = admin.test_access(principal, operation, kind, name, host=host or "")
    if as_json:
        print_json(verdict)
    else:
        may = "may" if verdict.allowed else "may not"
        why = _REASONS.get(verdict.reason, verdict.reason)
        because = why if verdict.rule is None else str(verdict.rule)
        print(f"{principal} {may} {operation.upper()} {resource}: {because}")
    return 0 if verdict.allowed else EXIT_NOT_WELL


_REASONS = {
    "SuperUser": "it is one of super.users",
    "DefaultAllow": "no rule is about this resource, and allow.everyone.if.no.acl.found is true",
    "DefaultDeny": "no rule allows it",
}


def _resource_of(text: str) -> tuple[str, str]:
    """Type and name. Raises UsageError."""
    from stele.admin.acls import CLUSTER_NAME

    kind, colon, name = text.partition(":")
    kind = _kind_of(kind)
    if kind == "CLUSTER":
        return kind, name or CLUSTER_NAME
    if not colon or not name:
        raise UsageError(f"{text!r} is not TYPE:NAME, for example topic:orders")
    return kind, name


def _kind_of(text: str) -> str:
    """Raises UsageError."""
    from stele.admin.acls import RESOURCE_TYPES

    kind = text.upper().replace("-", "_")
    if kind not in RESOURCE_TYPES:
        names = ", ".join(each.lower().replace("_", "-") for each in RESOURCE_TYPES)
        raise UsageError(f"there is no resource type {text!r}: there are {names}")
    return kind


def _filter_of(
    principal: str | None,
    operation: str | None,
    resource: str | None,
    touching: bool,
    host: str | None,
) -> AclFilter:
    from stele.admin.acls import AclFilter

    kind = name = None
    if resource is not None:
        if ":" in resource:
            kind, name = _resource_of(resource)
        else:
            kind = _kind_of(resource)
    if touching and name is None:
        raise UsageError("--touching needs the name of a resource: --resource topic:orders")
    return AclFilter(
        principal=principal,
        operation=operation,
        resource_type=kind,
        resource_name=name,
        pattern_type="MATCH" if touching else None,
        host=host,
    )


def _show(rules: Sequence[Acl], as_json: bool) -> None:
    if as_json:
        print_json(list(rules))
        return
    print_table(
        ("PERMISSION", "PRINCIPAL", "OPERATION", "RESOURCE", "PATTERN", "NAME", "HOST"),
        [
            (
                each.permission,
                each.principal,
                each.operation,
                each.resource_type,
                each.pattern_type,
                each.resource_name,
                each.host,
            )
            for each in rules
        ],
    )
