"""What clients may use of each broker."""

from __future__ import annotations

import math
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from console.changes import change
from console.desk import Desk, desk_of, go_to
from console.forms import Fields, FormError
from console.paging import Paged
from stele.admin.client_quotas import QuotaAlteration, entity_text

KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
TYPES: Final = ("user", "client-id", "ip")


async def quotas_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    wanted = fields.text("q").lower()
    found = [
        (entity_text(each.entity), each)
        for each in await desk.admin.describe_client_quotas(linearizable=False)
        if wanted in entity_text(each.entity).lower()
    ]
    return desk.page(
        "quotas.html",
        paged=Paged.of(found, fields.page()),
        q=fields.text("q"),
        keys=KEYS,
        types=TYPES,
    )


async def set_quota(desk: Desk, fields: Fields) -> Response:
    """A field of a name that is empty is not a part of the entity; ``*`` is the default."""
    names = {kind: fields.text(kind) for kind in TYPES if fields.text(kind)}
    if not names:
        raise FormError("a quota is of a user, a client-id, both, or an ip: name one")
    entity = {kind: None if name == "*" else name for kind, name in names.items()}
    key = fields.needed("key", "the key")
    value = None if fields.has("remove") else _rate(fields)
    await desk.admin.alter_client_quotas([QuotaAlteration(entity, {key: value})])
    return go_to("/quotas")


def _rate(fields: Fields) -> float:
    """Raises FormError."""
    text = fields.needed("value", "the value")
    try:
        value = float(text)
    except ValueError:
        raise FormError(f"the value {text!r} is no number") from None
    if not math.isfinite(value):
        raise FormError(f"the value {text!r} is no number")
    return value


ROUTES: Final[list[BaseRoute]] = [
    Route("/quotas", quotas_page),
    change("/quotas/set", set_quota),
]
