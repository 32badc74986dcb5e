"""Which topics a subscription means: named ones, or all whose name a pattern matches."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stele.cluster.view import ClusterView
from stele.topic_names import INTERNAL_PREFIX


class TopicChoice:
    """``names`` are the named topics; None for a pattern, which must match the whole name of a
    topic. Internal topics must be named."""

    def __init__(self, topics: Iterable[str] | re.Pattern[str], view: ClusterView) -> None:
        self._view = view
        self._pattern = topics if isinstance(topics, re.Pattern) else None
        self.names = None if isinstance(topics, re.Pattern) else frozenset(topics)
        self._looked_at: float | None = None

    def is_due(self, now_s: float) -> bool:
        """Whether the topics must be looked up again."""
        if self._pattern is None:
            return False
        age_s = self._view.config.metadata_max_age_ms / 1000
        return self._looked_at is None or now_s - self._looked_at >= age_s

    async def found(self) -> frozenset[str]:
        """The topics that match the pattern now. Raises UnreachableError."""
        assert self._pattern is not None  # named topics are never due
        news = await self._view.ask_any(self._view.plane.metadata(None))
        self._looked_at = self._view.world.clock.monotonic()
        names = (each.name for each in news.topics if not each.name.startswith(INTERNAL_PREFIX))
        return frozenset(each for each in names if self._pattern.fullmatch(each))
