"""Sizes of partitions, and while a topic is watched their rates, for ``stele topic describe``.

The description of a topic must also come when a broker is sick. So what it would take to measure is
asked apart, in little time, and what is not known is left out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cli.connection import connect
from cli.output import note
from cli.watch import is_watching
from stele.errors import SteleError
from stele.ids import TopicPartition

if TYPE_CHECKING:
    from stele.admin.descriptions import TopicDescription
    from stele.sync import Admin

MEASURING_S_MAX: Final = 5.0
_END: Final = -1
"""Stands for the end of a log in ``Admin.list_offsets``."""


@dataclass(frozen=True, slots=True)
class Measures:
    """By partition; what is missing is not known."""

    sizes_bytes: Mapping[TopicPartition, int]
    """The size of the leader's replica."""
    records_per_s: Mapping[TopicPartition, float]
    """Since the look before."""

    def size_of(self, topic: TopicDescription) -> int | None:
        """None: the size of a partition is not known."""
        names = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
        if any(name not in self.sizes_bytes for name in names):
            return None
        return sum(self.sizes_bytes[name] for name in names)


class Growth:
    """How fast offsets grow between looks."""

    def __init__(self) -> None:
        self._at_s = 0.0
        self._ends: Mapping[TopicPartition, int] = {}

    def rates(
        self, now_s: float, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, float]:
        """Per second since the look before; of a log that was truncated it is not known."""
        before, past_s = self._ends, now_s - self._at_s
        self._at_s, self._ends = now_s, dict(ends)
        return {
            name: (end - before[name]) / past_s
            for name, end in ends.items()
            if name in before and end >= before[name] and past_s > 0
        }


_growth: Final = Growth()


def measure(bootstrap: str, timeout_s: float, topics: Sequence[TopicDescription]) -> Measures:
    """Never raises because of the cluster: standard error says what is not known."""
    led = {
        TopicPartition(topic.name, each.partition): each.leader
        for topic in topics
        for each in topic.partitions
        if each.leader is not None
    }
    sizes: dict[TopicPartition, int] = {}
    rates: dict[TopicPartition, float] = {}
    with connect(bootstrap, min(timeout_s, MEASURING_S_MAX)) as admin:
        for leader in sorted(set(led.values())):
            names = [name for name, each in led.items() if each == leader]
            try:
                sizes |= sizes_at(admin, leader, names)
            except SteleError as error:
                note(f"stele: sizes at broker {leader} are not known: {error}")
        if is_watching():
            try:
                found = admin.list_offsets(dict.fromkeys(led, _END))
                ends = {name: each.offset for name, each in found.items()}
                rates = _growth.rates(time.monotonic(), ends)
            except SteleError as error:
                note(f"stele: rates are not known: {error}")
    return Measures(sizes, rates)


def sizes_at(
    admin: Admin, broker_id: int, names: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The sizes of this broker's replicas. Raises SteleError."""
    return {
        each.partition: each.size_bytes
        for directory in admin.describe_log_dirs([broker_id], names)
        for each in directory.replicas
        if not each.is_future and each.size_bytes >= 0
    }
