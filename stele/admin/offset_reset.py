"""Which offset a reset gives to a partition, by the rules of Kafka's group tool (KIP-122)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stele.errors import ConfigError
from stele.ids import TopicPartition


class Place(enum.Enum):
    """Where a reset goes. Some need a number."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"  # the committed offset stays; without one: the end
    TIME = "time"  # the first record at or after a time; without one: the end
    OFFSET = "offset"
    SHIFT = "shift"  # so many offsets after the committed one, or before it if negative


class Target(NamedTuple):
    place: Place
    number: int = 0
    """For OFFSET the offset, for SHIFT the distance, for TIME the timestamp in milliseconds."""


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What a reset of one partition depends on."""

    earliest: int
    latest: int
    committed: int | None = None
    at_time: int | None = None
    """The offset of the first record at or after the target's time; None if there is none."""


class Plan(NamedTuple):
    offsets: dict[TopicPartition, int]
    warnings: list[str]


def plan(
    targets: Mapping[TopicPartition, Target], known: Mapping[TopicPartition, PartitionOffsets]
) -> Plan:
    """The new offset of each partition. Offsets outside of the log become its first or its end.

    Raises ConfigError if a partition without committed offset is to be shifted.
    """
    made = Plan({}, [])
    for name, target in targets.items():
        made.offsets[name] = _offset(name, target, known[name], made.warnings)
    return made


def _offset(
    name: TopicPartition, target: Target, known: PartitionOffsets, warnings: list[str]
) -> int:
    match target.place:
        case Place.EARLIEST:
            return known.earliest
        case Place.LATEST:
            return known.latest
        case Place.CURRENT:
            return known.latest if known.committed is None else known.committed
        case Place.TIME:
            if known.at_time is not None:
                return known.at_time
            warnings.append(f"{name} has no record since then: its end {known.latest} is taken")
            return known.latest
        case Place.OFFSET:
            return _within(name, target.number, known, warnings)
        case Place.SHIFT:
            if known.committed is None:
                raise ConfigError(f"{name} has no committed offset that could be shifted")
            return _within(name, known.committed + target.number, known, warnings)


def _within(name: TopicPartition, offset: int, known: PartitionOffsets, warnings: list[str]) -> int:
    if offset > known.latest:
        warnings.append(f"{name} ends at {known.latest}: that is taken instead of {offset}")
        return known.latest
    if offset < known.earliest:
        warnings.append(f"{name} begins at {known.earliest}: that is taken instead of {offset}")
        return known.earliest
    return offset
