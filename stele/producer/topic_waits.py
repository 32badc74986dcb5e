"""The waits of a producer for topics that it does not know yet."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, NamedTuple

from stele.cluster.view import ClusterView, KnownTopic
from stele.errors import ApiError, UnreachableError
from stele.ids import TopicPartition

LEAST_S: Final = 1.0
"""Less time than that is not worth another wait."""


class _Wait(NamedTuple):
    task: asyncio.Task[KnownTopic]
    deadline: float  # that of the call which began it


class TopicWaits:
    """One wait at a time for each topic, however many calls wait for it."""

    def __init__(self, view: ClusterView, timeout_s: float) -> None:
        self._view = view
        self._clock = view.world.clock
        self._timeout_s = timeout_s
        self._waits: dict[str, _Wait] = {}

    async def wait(self, topic: str) -> None:
        """Wait until the topic is known. A caller that is cancelled ends no wait of others.

        Raises ApiError UNKNOWN_TOPIC_OR_PARTITION or UnreachableError after the timeout, and
        CancelledError after ``cancel``.
        """
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            wait = self._waits.get(topic) or self._begin(topic, deadline)
            try:
                await asyncio.shield(wait.task)
            except (ApiError, UnreachableError):
                # An earlier call has begun the wait, and had less time left than this one.
                if deadline - wait.deadline < LEAST_S:
                    raise
            else:
                return

    def _begin(self, topic: str, deadline: float) -> _Wait:
        waiting = self._view.wait_for_topic(topic, deadline - self._clock.monotonic())
        wait = _Wait(asyncio.get_running_loop().create_task(waiting), deadline)
        self._waits[topic] = wait
        wait.task.add_done_callback(partial(self._ended, topic))
        return wait

    def _ended(self, topic: str, wait: asyncio.Task[KnownTopic]) -> None:
        self._waits.pop(topic, None)
        if not wait.cancelled():
            wait.exception()  # every caller that waited may have been interrupted

    def why(self) -> dict[TopicPartition, str]:
        """For each topic that is waited for, as partition -1, why it is not known."""
        return {TopicPartition(topic, -1): self._reason(topic) for topic in self._waits}

    def _reason(self, topic: str) -> str:
        code = self._view.topic_error(topic)
        return "the topic is not known yet" + (f" ({code.name})" if code else "")

    async def cancel(self) -> None:
        """End all waits."""
        tasks = [each.task for each in self._waits.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
