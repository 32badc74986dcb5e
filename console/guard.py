"""Which requests come to a page at all, and the headers of every answer."""

from __future__ import annotations

import hmac
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.settings import ConsoleSettings

KEY_FIELD: Final = "key"
READING: Final = frozenset({"GET", "HEAD"})

_CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""The policy of every answer that has none of its own."""

_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Without a referrer policy that includes the own origin, browsers send ``Origin: null``."""


class Guard:
    """Lets a request through if it is for this console, from its own pages, by its own person."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("Content-Security-Policy", _CONTENT_POLICY)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._instead(Request(scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _instead(self, request: Request) -> Response | None:
        """The answer to a request that does not come to a page; None: it does."""
        host = request.headers.get("host", "")
        if not self._settings.is_own_host(host):
            return _refused(
                421,
                f"The Host header {host!r} is not an address of this console. If it should be, "
                "start the console with --allow-host.",
            )
        if request.method not in READING and not _is_from_own_page(request, host):
            return _refused(403, "This request comes from another web page, and is refused.")
        key = request.query_params.get(KEY_FIELD)
        if key is not None and request.method in READING:
            return self._opened(request, key)
        if not _same(request.cookies.get(self._settings.cookie_name, ""), self._key):
            return _refused(
                403,
                "Open the address that the command stele console has printed: it contains the key "
                "to this console.",
            )
        return None

    @property
    def _key(self) -> str:
        return self._settings.access_key

    def _opened(self, request: Request, key: str) -> Response:
        """The key moves from the address, which browsers remember and show, into a cookie."""
        if not _same(key, self._key):
            return _refused(
                403, "The key in this address is of another start of the console. Use the new one."
            )
        # Only the path: a path that begins with two slashes would lead to another host.
        answer = RedirectResponse("/" + request.url.path.lstrip("/"), status_code=303)
        answer.set_cookie(self._settings.cookie_name, key, httponly=True, samesite="strict")
        return answer


def _is_from_own_page(request: Request, host: str) -> bool:
    """Browsers send Origin with every POST. A program that sends neither header is no browser."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    own = (None, f"http://{host}", f"https://{host}")
    return site == "same-origin" and (origin.lower() if origin else None) in own


def _same(given: str, key: str) -> bool:
    return hmac.compare_digest(given.encode(), key.encode())


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(why + "\n", status_code=status)
