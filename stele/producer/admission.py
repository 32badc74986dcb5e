"""The waits of a producer's calls before it accepts their records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stele.cluster.view import ClusterView
from stele.config import ProducerConfig
from stele.errors import BufferFullError
from stele.ids import TopicPartition
from stele.producer.accumulator import Accumulator
from stele.producer.topic_waits import TopicWaits


class Admission:
    """A call waits until the client knows its topic and the buffer has room for its record. Both
    together may take ``max_block_ms``.

    ``check_open`` raises the reason once the producer accepts no more records. ``hurry`` has the
    sender send the batches that linger. ``obstacle`` says why no batch leaves the buffer.
    """

    def __init__(
        self,
        config: ProducerConfig,
        view: ClusterView,
        accumulator: Accumulator,
        *,
        check_open: Callable[[], None],
        hurry: Callable[[], None],
        obstacle: Callable[[], str],
    ) -> None:
        self._config = config
        self._view = view
        self._clock = view.world.clock
        self._accumulator = accumulator
        self._check_open = check_open
        self._hurry = hurry
        self._obstacle = obstacle
        self._topic_waits = TopicWaits(view, config.max_block_ms / 1000)

    def deadline(self) -> float:
        """When a call that begins now has lasted ``max_block_ms``."""
        return self._clock.monotonic() + self._config.max_block_ms / 1000

    async def wait(self, topic: str, size: int) -> None:
        """Wait for the topic and for room."""
        deadline = None
        if self._view.topic(topic) is None:
            deadline = self.deadline()
            await self.wait_for_topic(topic)
        if self._accumulator.must_wait(size):
            await self.wait_for_room(size, deadline or self.deadline())

    async def wait_for_topic(self, topic: str) -> None:
        """Wait until the topic is known. Raises what ``check_open`` raises if ``end`` ends the
        wait, and otherwise as ``TopicWaits.wait``."""
        try:
            await self._topic_waits.wait(topic)
        except asyncio.CancelledError:
            self._check_open()  # ``end`` has cancelled the wait, not the caller
            raise

    async def wait_for_room(self, size: int, deadline: float) -> None:
        """Wait until the buffer has room for ``size`` bytes. Other callers may take it before this
        one does. Raises BufferFullError at the deadline.
        """
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                must_wait = self._accumulator.must_wait(size)
                while must_wait:
                    self._hurry()  # nothing lingers any more
                    await self._accumulator.wait_for_room(size)
                    self._check_open()
                    must_wait = not self._accumulator.has_room(size)
        except TimeoutError:
            raise BufferFullError(
                f"no room in the buffer within max_block_ms={self._config.max_block_ms}: the "
                f"brokers take records slower than they come, or not at all{self._obstacle()}"
            ) from None

    def why(self) -> dict[TopicPartition, str]:
        """For each topic that calls wait for, as partition -1, why it is not known."""
        return self._topic_waits.why()

    async def end(self) -> None:
        """End the waits for topics."""
        await self._topic_waits.cancel()
