"""One broker: what happened to it, and what depends on it now."""

from __future__ import annotations

from dataclasses import dataclass

from metadata.explain.causes import broker_events
from metadata.explain.history import MetadataHistory
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER
from stele.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    offset: int
    time_ms: int
    what: str


@dataclass(frozen=True, slots=True)
class Dependence:
    """Partitions by what the broker is for them."""

    leads: tuple[TopicPartition, ...]
    in_sync: tuple[TopicPartition, ...]
    behind: tuple[TopicPartition, ...]
    """It has a replica, and is not in the ISR."""
    waiting: tuple[TopicPartition, ...]
    """They have no leader, and this broker has every committed record."""


def broker_history(history: MetadataHistory, broker_id: int) -> list[BrokerEvent]:
    """The known history of a broker, in order."""
    return [
        BrokerEvent(decision.offset, decision.time_ms, what)
        for decision in history.decisions
        for who, what in broker_events(decision)
        if who == broker_id
    ]


def dependence(image: MetadataImage, broker_id: int) -> Dependence:
    """The partitions that depend on a broker."""
    leads: list[TopicPartition] = []
    in_sync: list[TopicPartition] = []
    behind: list[TopicPartition] = []
    waiting: list[TopicPartition] = []
    for topic, number, state in image.sorted_partitions():
        if broker_id not in state.replicas:
            continue
        name = TopicPartition(topic.name, number)
        if state.leader == broker_id:
            leads.append(name)
        if state.leader == NO_LEADER and broker_id in (*state.isr, *state.elr):
            waiting.append(name)
        (in_sync if broker_id in state.isr else behind).append(name)
    return Dependence(tuple(leads), tuple(in_sync), tuple(behind), tuple(waiting))
