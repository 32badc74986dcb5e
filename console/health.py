"""What is wrong with partitions now, in the words of ``stele explain``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from metadata.explain.history import MetadataHistory
from metadata.explain.partition import Diagnosis, Health, diagnose, health_of
from stele.admin.descriptions import PartitionDescription, TopicDescription
from stele.admin.metadata_log import MetadataLog
from stele.aio import Admin
from stele.ids import TopicPartition

MOST_FAULTS: Final = 20
_DECISIONS_PER_TURN: Final = 100


@dataclass(frozen=True, slots=True)
class Fault:
    """Partitions that have the same fault by the same brokers, and the diagnosis of the first."""

    partitions: tuple[TopicPartition, ...]
    diagnosis: Diagnosis


def is_ill(partition: PartitionDescription) -> bool:
    return partition.leader is None or partition.is_under_replicated


async def find_faults(admin: Admin, topics: Iterable[TopicDescription]) -> list[Fault]:
    """The worst first, at most ``MOST_FAULTS``. The metadata log is read only if there are any.
    Raises SteleError."""
    ill = [
        TopicPartition(topic.name, each.partition)
        for topic in topics
        for each in topic.partitions
        if is_ill(each)
    ]
    if not ill:
        return []
    return faults_of(await history_of(await admin.read_metadata_log()), ill)


def faults_of(history: MetadataHistory, ill: Sequence[TopicPartition]) -> list[Fault]:
    """A diagnosis looks through the history, so there is one for all partitions alike."""
    image = history.image
    alike: dict[_Cause, list[TopicPartition]] = {}
    for name in ill:
        topic = image.topic(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            continue  # it was deleted meanwhile
        state = topic.partitions[name.partition]
        health = health_of(image, topic, state)
        if health is not Health.HEALTHY:
            missing = tuple(sorted(set(state.replicas) - set(state.isr)))
            key = (_RANKS[health], missing, tuple(sorted(state.isr)), tuple(sorted(state.elr)))
            alike.setdefault(key, []).append(name)
    found = []
    for key in sorted(alike, key=lambda key: (key[0], -len(alike[key])))[:MOST_FAULTS]:
        first = alike[key][0]
        topic = image.topic(first.topic)
        assert topic is not None
        found.append(Fault(tuple(alike[key]), diagnose(history, topic, first.partition)))
    return found


_Ids = tuple[int, ...]
_Cause = tuple[int, _Ids, _Ids, _Ids]
"""How bad it is; the brokers out of the ISR, in it, and eligible."""

_RANKS: Final = {health: rank for rank, health in enumerate(Health)}


async def history_of(log: MetadataLog) -> MetadataHistory:
    """The decisions that the log still has, and the metadata after them."""
    history = MetadataHistory()
    if log.snapshot is not None:
        told = log.snapshot
        history.take_snapshot(told.end_offset, told.timestamp_ms, told.records)
    for number, each in enumerate(log.decisions):
        history.take(each.base_offset, each.epoch, each.timestamp_ms, each.records)
        if number % _DECISIONS_PER_TURN == 0:
            await asyncio.sleep(0)  # other pages have their turn
    return history
