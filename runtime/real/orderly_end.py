"""Ends in good order: every step is taken, whatever becomes of those before it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

Step = Callable[[], Awaitable[object] | None]


class OrderlyEnd:
    """What is to be done in the end, the newest first.

    A failure or a cancellation ends the step under way and no other: a log that is not closed keeps
    its directory locked, a listener its port. Not so the end of the coroutine itself
    (``GeneratorExit``): nobody runs it any more, and it must not go on.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []

    def push(self, step: Step) -> None:
        """Do it before what was pushed until now."""
        self._steps.append(step)

    async def run(self) -> None:
        """Take every step, once. Raises what the first one raised that did not succeed, and
        CancelledError rather than anything else; the others are logged."""
        raised: BaseException | None = None
        while self._steps:
            step = self._steps.pop()
            try:
                if (outcome := step()) is not None:
                    await outcome
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, Exception):
                    logger.error("a step of an orderly end failed: %s", error, exc_info=error)
                if raised is None or not isinstance(error, Exception):
                    raised = error
        if raised is not None:
            raise raised
