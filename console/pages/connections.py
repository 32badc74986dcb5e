"""The clients that are connected to brokers."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from console.desk import desk_of
from console.forms import Fields
from console.paging import Paged


async def connections_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    wanted = fields.text("q").lower()
    found = [
        (broker_id, each)
        for broker_id, connections in (await desk.admin.describe_connections()).items()
        for each in connections
        if wanted in f"{each.client_id} {each.principal} {each.peer}".lower()
    ]
    found.sort(key=lambda pair: (not pair[1].is_throttled, -(pair[1].bytes_in + pair[1].bytes_out)))
    return desk.page("connections.html", paged=Paged.of(found, fields.page()), q=fields.text("q"))


ROUTES: Final[list[BaseRoute]] = [Route("/connections", connections_page)]
