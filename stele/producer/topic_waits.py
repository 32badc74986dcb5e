"""The waits of a producer for topics that it does not know yet."""

from __future__ import annotations

import asyncio
from functools import partial

from stele.cluster.view import ClusterView, KnownTopic
from stele.ids import TopicPartition


class TopicWaits:
    """One wait for each topic, however many calls wait for it."""

    def __init__(self, view: ClusterView, timeout_s: float) -> None:
        self._view = view
        self._timeout_s = timeout_s
        self._waits: dict[str, asyncio.Task[KnownTopic]] = {}

    async def wait(self, topic: str) -> None:
        """Wait until the topic is known. A caller that is cancelled ends no wait of others.

        Raises ApiError UNKNOWN_TOPIC_OR_PARTITION or UnreachableError after the timeout, and
        CancelledError after ``cancel``.
        """
        task = self._waits.get(topic)
        if task is None:
            wait = self._view.wait_for_topic(topic, self._timeout_s)
            task = asyncio.get_running_loop().create_task(wait)
            self._waits[topic] = task
            task.add_done_callback(partial(self._ended, topic))
        await asyncio.shield(task)

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
        waits = list(self._waits.values())
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
