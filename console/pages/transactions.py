"""Transactional ids and their transactions."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from console.changes import change
from console.desk import Desk, desk_of, go_to
from console.forms import Fields, FormError
from console.paging import Paged


async def transactions_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    wanted = fields.text("q").lower()
    found = [
        each
        for each in await desk.admin.list_transactions()
        if wanted in each.transactional_id.lower()
    ]
    return desk.page("transactions.html", paged=Paged.of(found, fields.page()), q=fields.text("q"))


async def transaction_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    name = fields.name("id", "the transactional id")
    (found,) = await desk.admin.describe_transactions([name])
    return desk.page("transaction.html", transaction=found)


async def fence(desk: Desk, fields: Fields) -> Response:
    name = fields.name("id", "the transactional id")
    if fields.raw("confirmation") != name:
        raise FormError(f"to fence the producer of {name!r}, write its id: nothing was done")
    await desk.admin.fence_producer(name)
    return go_to("/transaction", id=name)


ROUTES: Final[list[BaseRoute]] = [
    Route("/transactions", transactions_page),
    Route("/transaction", transaction_page),
    change("/transaction/fence", fence),
]
