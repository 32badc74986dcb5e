"""An orderly end: every step is taken, even if earlier ones fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

Step = Callable[[], Awaitable[object] | None]


class OrderlyEnd:
    """The steps of an end, newest first.

    A failure or a cancellation ends only the step under way: a log that is not closed keeps its
    directory locked, a listener its port. When the coroutine itself is closed (``GeneratorExit``),
    nobody runs it any more, and no further step is taken.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []

    def push(self, step: Step) -> None:
        """Add a step that is taken before all those pushed until now."""
        self._steps.append(step)

    async def run(self) -> None:
        """Take every step, once. Raises CancelledError if a step was cancelled, else the first
        error; further errors are logged."""
        raised: BaseException | None = None
        while self._steps:
            step = self._steps.pop()
            try:
                if (outcome := step()) is not None:
                    await outcome
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, Exception):
                    logger.error("a step of the shutdown failed: %s", error, exc_info=error)
                if raised is None or not isinstance(error, Exception):
                    raised = error
        if raised is not None:
            raise raised
