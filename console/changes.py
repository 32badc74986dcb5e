"""The one way to a handler that changes something."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.desk import Desk, desk_of
from console.forms import Fields

Change = Callable[[Desk, Fields], Awaitable[Response]]

TOKEN_FIELD: Final = "form_token"


def change(path: str, handler: Change) -> Route:
    """A route by POST. The handler is called for forms of the console's own pages alone, and never
    with ``--read-only``."""

    async def checked(request: Request) -> Response:
        desk = desk_of(request)
        if desk.settings.is_read_only:
            return desk.page(
                "refused.html",
                status=403,
                title="The console is read-only",
                message="It was started with --read-only, so it changes nothing.",
            )
        fields = await Fields.sent_with(request)
        if not hmac.compare_digest(
            fields.text(TOKEN_FIELD).encode(), desk.settings.form_token.encode()
        ):
            return desk.page(
                "refused.html",
                status=403,
                title="The form is too old",
                message="It is of an earlier start of the console. Load its page again.",
            )
        return await handler(desk, fields)

    return Route(path, checked, methods=["POST"])
