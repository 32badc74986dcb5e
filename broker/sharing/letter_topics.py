"""Makes dead letter topics that do not exist, if the node's configuration allows it (KIP-1191)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from metadata.image import MetadataImage
from stele.errors import ApiError, ErrorCode
from stele.world import Clock

RETRY_S: Final = 5.0
"""A topic that could not be made is tried again after this time."""


class LetterTopics:
    """The dead letter topics that the share partitions of a broker miss.

    Many share partitions may miss a topic at one moment, and go on missing it. One of them has it
    made, and a refusal counts for all of them until it is tried again.
    """

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        make: Callable[[str], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """``make`` has the controller make a topic. It raises ApiError."""
        self._image = image
        self._make = make
        self._clock = clock
        self._turn = asyncio.Lock()
        # By topic: when it is tried again, and why it could not be made.
        self._refused: dict[str, tuple[float, ErrorCode, str]] = {}

    async def made(self, name: str) -> None:
        """Return when the topic is made, if it is not there. Raises ApiError: it cannot be made."""
        async with self._turn:
            if self._image().topic(name) is not None:
                return
            now_s = self._clock.monotonic()
            self._refused = {key: each for key, each in self._refused.items() if each[0] > now_s}
            if name in self._refused:
                _, code, message = self._refused[name]
                raise ApiError(code, message)
            try:
                await self._make(name)
            except ApiError as error:
                again_s = self._clock.monotonic() + RETRY_S
                self._refused[name] = again_s, error.code, error.message
                raise
