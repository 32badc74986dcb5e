"""Computing that takes longer than a turn of the event loop may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Compute(Protocol):
    """Does computing off the event loop, one call after the other, in the order of the calls."""

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """The result of ``work``, a function of a module that needs nothing but its arguments.

        Arguments and result are plain values: numbers, text, bytes, and tuples of them. Raises
        OSError if the work fails, or if nobody can do it for now.
        """
        ...
