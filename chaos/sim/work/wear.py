"""What wears a cluster: logs that roll, retention, and a topic that is deleted and made anew."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from chaos.sim.work.load import Part

AGAIN: Final = "again"
"""The topic that is deleted and made anew."""


@dataclass(frozen=True, slots=True)
class Wear(Part):
    """What changes during a run: a topic is made anew under its name, logs roll, and retention
    deletes their old segments."""

    label: ClassVar = "wear"

    remake_pause_s: float = 0.0  # between two deletions of the topic; 0: there is no such topic
    segment_bytes: int | None = None  # replaces the load's
    retention_ms: int | None = None
    retention_bytes: int | None = None
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> Wear:
        """Each of the two kinds of wear comes to half of the runs."""
        settings, wear = {}, cls()
        if rng.random() < 0.5:
            wear = replace(wear, remake_pause_s=rng.choice([0.5, 1.0, 3.0]))
            pause_ms = rng.choice([100, 100, 500])
            settings["replica.high.watermark.checkpoint.interval.ms"] = str(pause_ms)
        if rng.random() < 0.5:
            settings["log.retention.check.interval.ms"] = str(rng.choice([300, 1000]))
            wear = replace(
                wear,
                segment_bytes=rng.choice([1024, 1024, 4000]),
                retention_ms=rng.choice([None, 3000, 10_000]),
                retention_bytes=rng.choice([None, 3000, 20_000]),
            )
        return replace(wear, settings=tuple(settings.items()))

    def topic_configs(self) -> dict[str, str]:
        told = {
            "segment.bytes": self.segment_bytes,
            "retention.ms": self.retention_ms,
            "retention.bytes": self.retention_bytes,
        }
        return {name: str(value) for name, value in told.items() if value is not None}

    @property
    def is_there(self) -> bool:
        """Whether a topic is made anew. All topics have the other wear."""
        return bool(self.remake_pause_s)
