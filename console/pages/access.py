"""Access rules and users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from console.changes import change
from console.desk import Desk, desk_of, go_to
from console.forms import Fields, FormError
from console.paging import Paged
from console.troubles import Trouble, trouble_of
from stele.admin.acls import OPERATIONS, PATTERN_TYPES, PERMISSIONS, RESOURCE_TYPES, Acl, AclFilter
from stele.admin.users import (
    DEFAULT_MECHANISM,
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
)
from stele.errors import SteleError
from stele.security.scram import MECHANISMS
from stele.world import RpcError


async def access_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    wanted = fields.text("q").lower()
    acls, acls_trouble = await _acls(desk)
    users, users_trouble = await _users(desk)
    return desk.page(
        "access.html",
        paged=Paged.of([each for each in acls if wanted in str(each).lower()], fields.page()),
        q=fields.text("q"),
        acls_trouble=acls_trouble,
        users=[(name, each) for name, each in sorted(users.items()) if wanted in name.lower()],
        users_trouble=users_trouble,
        resource_types=list(RESOURCE_TYPES),
        operations=list(OPERATIONS),
        pattern_types=list(PATTERN_TYPES),
        permissions=sorted(PERMISSIONS),
        mechanisms=list(MECHANISMS),
        default_mechanism=DEFAULT_MECHANISM,
    )


async def _acls(desk: Desk) -> tuple[list[Acl], Trouble | None]:
    try:
        return await desk.admin.describe_acls(AclFilter()), None
    except (SteleError, RpcError) as error:
        return [], trouble_of(error)


async def _users(desk: Desk) -> tuple[dict[str, list[ScramCredentialInfo]], Trouble | None]:
    try:
        return await desk.admin.describe_user_scram_credentials(linearizable=False), None
    except (SteleError, RpcError) as error:
        return {}, trouble_of(error)


async def add_rule(desk: Desk, fields: Fields) -> Response:
    await desk.admin.create_acls([_rule(fields.needed)])
    return go_to("/access")


async def remove_rule(desk: Desk, fields: Fields) -> Response:
    rule = _rule(fields.name)
    await desk.admin.delete_acls(
        [
            AclFilter(
                rule.principal,
                rule.operation,
                rule.resource_type,
                rule.resource_name,
                rule.pattern_type,
                rule.host,
                rule.permission,
            )
        ]
    )
    return go_to("/access")


def _rule(read: Callable[[str, str], str]) -> Acl:
    """Every property is needed: a filter without one would match more rules. Raises FormError.

    ``read``: a rule that exists is named as it is, a new one without the space around it."""
    return Acl(
        read("principal", "the principal"),
        read("operation", "the operation"),
        read("resource_type", "the type of the resource"),
        read("resource_name", "the name of the resource"),
        read("pattern_type", "the pattern type"),
        read("host", "the host"),
        read("permission", "the permission"),
    )


async def set_password(desk: Desk, fields: Fields) -> Response:
    user = fields.needed("user", "the name of the user")
    password = fields.raw("password")
    if password != fields.raw("again"):
        raise FormError("the two passwords differ: nothing was changed")
    mechanism = fields.needed("mechanism", "the mechanism")
    await desk.admin.alter_user_scram_credentials([ScramUpsertion(user, password, mechanism)])
    return go_to("/access")


async def remove_credential(desk: Desk, fields: Fields) -> Response:
    deletion = ScramDeletion(
        fields.name("user", "the name of the user"),
        fields.needed("mechanism", "the mechanism"),
    )
    await desk.admin.alter_user_scram_credentials(deletions=[deletion])
    return go_to("/access")


ROUTES: Final[list[BaseRoute]] = [
    Route("/access", access_page),
    change("/access/rules/add", add_rule),
    change("/access/rules/remove", remove_rule),
    change("/access/users/password", set_password),
    change("/access/users/remove", remove_credential),
]
