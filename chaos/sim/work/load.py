"""How much work a run has, and of which kinds."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass, field, replace

from chaos.sim.work.any_replica import AnyReplicaLoad
from chaos.sim.work.compacted import CompactedLoad
from chaos.sim.work.groups import GroupLoad
from chaos.sim.work.rare import RareLoad
from chaos.sim.work.transactions import TransactionLoad

_SEGMENT_BYTES = (2000, 10_000, 1 << 30)


class LoadKind(enum.StrEnum):
    """How a run gets its cluster and its work."""

    DRAWN = "drawn"  # the seed decides both
    LIGHT = "light"  # three controllers, three brokers and light load for every seed
    RARE = "rare"  # as light, and what hardly any client or operator does

    @property
    def is_small(self) -> bool:
        """Whether the cluster and the usual work are those of light load."""
        return self is not LoadKind.DRAWN


@dataclass(frozen=True, slots=True)
class Wear:
    """What changes during a run: a topic is made anew under its name, logs roll, and retention
    deletes their old segments."""

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


@dataclass(slots=True)
class Load:
    """How much work there is."""

    exact_producers: int = 1
    exact_pause_s: float = 0.2  # between batches of a producer
    batch_records: int = 5
    plain_writers: int = 1
    plain_pause_s: float = 0.2
    weak_writers: int = 1
    weak_pause_s: float = 0.5
    consumers: int = 1
    admin_pause_s: float = 10.0
    readers: int = 2  # of the metadata
    read_pause_s: float = 0.3
    partitions: int = 2
    min_insync: int = 2
    segment_bytes: int = 1 << 30
    stream_pause_s: float = 0.0  # between records of a ``Streamer``; 0: there is none
    rude_writers: int = 0
    wear: Wear = field(default_factory=Wear)
    groups: GroupLoad = field(default_factory=GroupLoad)
    compacted: CompactedLoad = field(default_factory=CompactedLoad)
    any_replica: AnyReplicaLoad = field(default_factory=AnyReplicaLoad)
    transactions: TransactionLoad = field(default_factory=TransactionLoad)
    rare: RareLoad = field(default_factory=RareLoad)

    @classmethod
    def light(cls, rng: random.Random) -> Load:
        """About five acks=all batches a second from one producer."""
        return cls(
            plain_writers=0,
            weak_writers=0,
            partitions=1,
            admin_pause_s=rng.choice([3.0, 10.0]),
            segment_bytes=rng.choice(_SEGMENT_BYTES),
        )

    @classmethod
    def draw(cls, rng: random.Random) -> Load:
        return cls(
            exact_producers=rng.randint(1, 2),
            exact_pause_s=rng.choice([0.05, 0.2, 0.2, 1.0]),
            batch_records=rng.choice([1, 5, 20]),
            plain_writers=rng.randint(1, 3),
            plain_pause_s=rng.choice([0.05, 0.2, 0.5]),
            weak_writers=rng.randint(0, 2),
            weak_pause_s=rng.choice([0.1, 0.5]),
            consumers=rng.randint(1, 2),
            admin_pause_s=rng.choice([0.0, 3.0, 10.0]),
            partitions=rng.randint(1, 3),
            min_insync=rng.choice([1, 2, 2, 2]),
            segment_bytes=rng.choice(_SEGMENT_BYTES),
            stream_pause_s=rng.choice([0.0, 0.0, 0.02, 0.05]),
            rude_writers=rng.randint(0, 2),
        )

    def with_rare(self, rare: RareLoad) -> Load:
        """This load and rare things. Administrators are busier, and many small batches are under
        way."""
        return replace(
            self,
            rare=rare,
            admin_pause_s=rare.admin_pause_s,
            stream_pause_s=rare.stream_pause_s,
        )
