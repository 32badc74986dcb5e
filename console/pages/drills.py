"""The reports of drills, with the pages that the drills have made of their timelines."""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from console.desk import desk_of
from console.drill_reports import find_reports, page_of
from console.forms import Fields
from console.paging import Paged

_POLICY: Final = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
"""A report is a page of its own with its own styles. It runs nothing, loads nothing, and is no page
of the console for the browser."""


async def drills_page(request: Request) -> Response:
    desk, directory = desk_of(request), desk_of(request).settings.reports
    if directory is None:
        raise HTTPException(404, "This console was started without --reports")
    paged = Paged.of(find_reports(directory), Fields.of_link(request).page())
    return desk.page("drills.html", directory=directory, paged=paged)


async def drill_page(request: Request) -> Response:
    directory = desk_of(request).settings.reports
    name = Fields.of_link(request).name("name", "the drill")
    found = None if directory is None else page_of(directory, name)
    if found is None:
        raise HTTPException(404, "There is no such report")
    return HTMLResponse(found, headers={"Content-Security-Policy": _POLICY})


ROUTES: Final[list[BaseRoute]] = [Route("/drills", drills_page), Route("/drill", drill_page)]
