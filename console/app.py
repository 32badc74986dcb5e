"""The ASGI application of a console."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from console import pages
from console.clients import ConsoleClients
from console.desk import Desk, desk_of
from console.forms import FormError
from console.guard import Guard
from console.rendering import Pages
from console.settings import ConsoleSettings
from console.troubles import trouble_of
from stele.errors import SteleError
from stele.world import RpcError

log = logging.getLogger("stele.console")

_PARTS = frozenset({"live", "list"})
STATIC = Path(__file__).parent / "static"


def build(settings: ConsoleSettings, clients: ConsoleClients) -> Starlette:
    """The application. Its end closes the clients."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await clients.close()

    app = _Console(
        routes=[*pages.ROUTES, Mount("/static", StaticFiles(directory=STATIC))],
        exception_handlers={
            SteleError: _on_cluster_error,
            RpcError: _on_cluster_error,
            FormError: _on_form_error,
            HTTPException: _on_wrong_address,
            Exception: _on_defect,
        },
        lifespan=lifespan,
    )
    app.state.desk = Desk(settings, clients, Pages(settings))
    return app


class _Console(Starlette):
    """The guard is outside of everything: the page of a defect needs its headers, too."""

    def build_middleware_stack(self) -> ASGIApp:
        return Guard(super().build_middleware_stack(), self.state.desk.settings)


async def _on_cluster_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SteleError | RpcError)
    trouble = trouble_of(error)
    return desk_of(request).page(
        "trouble.html", status=trouble.status, trouble=trouble, part=_part_of(request)
    )


def _part_of(request: Request) -> str:
    """The part of a page that a browser asked to replace. It must show the trouble: what it showed
    before is not true any more. The cluster's page then goes on asking."""
    named = request.headers.get("hx-target", "")
    if named in _PARTS:
        return named
    return "live" if request.url.path == "/" else ""


async def _on_form_error(request: Request, error: Exception) -> Response:
    return desk_of(request).page(
        "refused.html", status=400, title="This cannot be used", message=f"{error}."
    )


async def _on_wrong_address(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return desk_of(request).page(
        "refused.html", status=error.status_code, title=error.detail, message=request.url.path
    )


async def _on_defect(request: Request, error: Exception) -> Response:
    log.error("the page %r has failed", request.url.path, exc_info=error)
    return desk_of(request).page(
        "refused.html",
        status=500,
        title="The console has a defect",
        message=f"{type(error).__name__}. The output of the console says more.",
    )
