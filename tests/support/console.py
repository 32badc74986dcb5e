"""A browser for tests of the console: it asks the application without a socket."""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from console.app import build
from console.clients import ConsoleClients
from console.settings import ConsoleSettings
from controller.whatif import what_if
from stele.aio import Admin
from tests.support.thin_node import BOOTSTRAP, client_world
from world.world import World

PORT: Final = 8088
ADDRESS: Final = f"http://127.0.0.1:{PORT}"
KEY, TOKEN = "the-access-key", "the-form-token"


def console_settings(**changed: Any) -> ConsoleSettings:
    given: dict[str, Any] = {
        "bootstrap_servers": BOOTSTRAP,
        "access_key": KEY,
        "form_token": TOKEN,
        "port": PORT,
        "foresee": what_if,
    }
    return ConsoleSettings(**{**given, **changed})


class FakeClients(ConsoleClients):
    """Clients whose Admin is a fake of the test."""

    def __init__(self, settings: ConsoleSettings, admin: Any) -> None:
        super().__init__(settings)
        self._fake = admin

    @property
    def admin(self) -> Admin:
        found: Admin = self._fake
        return found


class Browser:
    """A browser that has opened the console's address."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def get(self, path: str, status: int = 200) -> str:
        """The HTML of a page, with its entities."""
        answer = await self.http.get(path)
        assert answer.status_code == status, answer.text
        return answer.text

    async def text(self, path: str, status: int = 200) -> str:
        """What a person reads on a page, on one line."""
        return visible(await self.get(path, status))

    async def post(
        self, path: str, fields: Mapping[str, str] | None = None, status: int = 303, **more: str
    ) -> str:
        """Send a form. Returns where the answer leads, or what it says."""
        answer = await self.http.post(path, data={"form_token": TOKEN, **(fields or {}), **more})
        assert answer.status_code == status, answer.text
        return answer.headers["location"] if status == 303 else visible(answer.text)


def visible(page: str) -> str:
    main = page.partition("<main")[2].partition("</main>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main.partition(">")[2])).split())


@asynccontextmanager
async def browser(settings: ConsoleSettings, clients: ConsoleClients) -> AsyncIterator[Browser]:
    transport = httpx.ASGITransport(build(settings, clients), raise_app_exceptions=True)
    cookies = {settings.cookie_name: KEY}
    async with httpx.AsyncClient(
        transport=transport, base_url=ADDRESS, cookies=cookies, timeout=None
    ) as http:
        yield Browser(http)
    await clients.close()


@asynccontextmanager
async def console_of(world: World, **changed: Any) -> AsyncIterator[Browser]:
    """A console beside a simulated node."""
    settings = console_settings(**changed)
    clients = ConsoleClients(settings, client_world(world))
    async with browser(settings, clients) as found:
        yield found


def leave_report(
    directory: Path, name: str, began: str, checks: list[tuple[str, bool]], **header: Any
) -> None:
    """What ``stele drill run`` leaves of a drill, as far as the console reads it."""
    place = directory / name
    place.mkdir()
    known = {"title": f"Title of {name}", "cluster": "process", "seed": 7, "control": ""}
    report = {
        "header": {**known, "began": began, **header},
        "green": all(holds for _, holds in checks),
        "checks": [{"name": each, "holds": holds, "told": "seen"} for each, holds in checks],
    }
    (place / "report.json").write_text(json.dumps(report))
    (place / "report.html").write_text(f"<h1>The timeline of {name}</h1>")
