"""Computing in a helper process: ``world.compute.Compute``."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
from collections.abc import Callable
from typing import Any, Final

from runtime.real.helper import HelperDiedError, HelperProcess

logger = logging.getLogger(__name__)

_COMMAND: Final = ("-P", "-m", "runtime.real.compute_process")
_PAUSE_S: Final = 1.0


class RealCompute:
    """The process begins with the first call. It keeps no state, so another one takes its place if
    it dies. The calls under way fail then."""

    def __init__(self) -> None:
        self._helper: HelperProcess | None = None
        self._began_s = -math.inf
        self._is_closed = False

    @property
    def process_id(self) -> int | None:
        """The process id of the helper process, once it runs."""
        return None if self._helper is None else self._helper.pid

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        results: list[Any] = []
        try:
            await self._running().call_in_parts(
                results.append, "compute", work.__module__, work.__qualname__, arguments
            )
        except HelperDiedError as error:
            raise OSError(errno.ECHILD, error.strerror) from error
        return results[0]

    def _running(self) -> HelperProcess:
        helper = self._helper
        if helper is None or (helper.is_dead and not self._is_closed):
            now_s = asyncio.get_running_loop().time()
            if now_s - self._began_s < _PAUSE_S:
                # The cause of the last end may end this one, too.
                raise OSError(errno.ECHILD, "the compute process died, and died again")
            self._began_s = now_s
            if helper is not None:
                logger.warning("starting the compute process anew")
                helper.close()
            helper = self._helper = HelperProcess("compute", _COMMAND)
        return helper

    def close(self) -> None:
        """End the helper process. Idempotent."""
        self._is_closed = True
        if self._helper is not None:
            self._helper.kill()
