"""Calls of functions that the user has given to a client."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("stele.client")


def call_user(function: Callable[..., object], *arguments: object, what: str) -> None:
    """Call it, and log what it raises. ``what`` names it in the log.

    The client calls it in the middle of its own work. A mistake in the user's function does not
    concern the client, so the client goes on. ``sys.exit`` has no meaning here either: in the
    synchronous clients it would only end their thread.
    """
    try:
        function(*arguments)
    except (Exception, SystemExit):
        log.exception("%s has failed; the client goes on", what)
