"""How much work a run has, and of which kinds."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass
from typing import ClassVar, Self, TypeVar

from chaos.sim.world.rng import Rngs

_SEGMENT_BYTES = (2000, 10_000, 1 << 30)


class LoadKind(enum.StrEnum):
    """How a run gets its cluster and its work."""

    DRAWN = "drawn"  # the seed decides both
    LIGHT = "light"  # three controllers, three brokers and light load for every seed
    RARE = "rare"  # as light, and what hardly any client or operator does

    @property
    def is_small(self) -> bool:
        """Whether the cluster and the usual work are as for light load."""
        return self is not LoadKind.DRAWN


class Part:
    """The load of one kind of work. A seed draws it. Without a draw there is none of the work."""

    label: ClassVar[str]  # of the generator that draws it
    is_rare: ClassVar[bool] = False  # only rare load has it
    settings: tuple[tuple[str, str], ...] = ()
    """What the nodes are configured with for the work's sake."""

    @classmethod
    def draw(cls, rng: random.Random) -> Self:
        raise NotImplementedError

    def rarer(self, rngs: Rngs) -> Self:
        """The same with what only rare load has."""
        return self

    def change(self, load: Load) -> Load:
        """What else of the load this part changes."""
        return load

    @property
    def is_there(self) -> bool:
        """Whether the run has any of the work."""
        raise NotImplementedError

    @property
    def racks(self) -> tuple[str, ...]:
        """The racks of the brokers, in turn. Empty: they have none."""
        return ()


P = TypeVar("P", bound=Part)


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
    parts: tuple[Part, ...] = ()
    """The loads of works that have one of their own, in the order of the registry."""

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

    def part(self, kind: type[P]) -> P:
        """The part of this kind. If the run has none, it stands for no work."""
        return next((each for each in self.parts if isinstance(each, kind)), kind())

    @property
    def settings(self) -> dict[str, str]:
        return {name: value for part in self.parts for name, value in part.settings}

    @property
    def racks(self) -> tuple[str, ...]:
        return next((part.racks for part in self.parts if part.racks), ())
