"""What every page needs: the clients, the settings, and a way to make HTML."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse

from console.clients import ConsoleClients
from console.rendering import Pages, address
from console.settings import ConsoleSettings
from stele.aio import Admin


@dataclass(slots=True)
class Desk:
    """One per console."""

    settings: ConsoleSettings
    clients: ConsoleClients
    pages: Pages
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server ends: answers that go on for long end then."""
    live_tails: int = 0

    @property
    def admin(self) -> Admin:
        return self.clients.admin

    def page(self, template: str, /, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(self.pages.html(template, **values), status_code=status)


def desk_of(request: Request) -> Desk:
    desk = request.app.state.desk
    assert isinstance(desk, Desk)
    return desk


def go_to(path: str, **query: str | int | None) -> RedirectResponse:
    """After a change: the browser gets the page, so that to load it again changes nothing."""
    return RedirectResponse(address(path, **query), status_code=303)
