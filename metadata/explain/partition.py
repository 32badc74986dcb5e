"""One partition: its changes and their reasons, its present faults, and the remedies."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from metadata.directories import LOST
from metadata.effective import min_insync_replicas
from metadata.explain.causes import PartitionCauses, broker_events
from metadata.explain.history import Decision, MetadataHistory
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER, PartitionState, state_of
from metadata.topics import Topic
from stele.ids import encode_uuid
from stele.wire.v1 import metadata_pb2 as pb


class Health(enum.Enum):
    """The worst first."""

    OFFLINE = "offline: nobody reads, nobody writes"
    UNDER_MIN_ISR = "under min ISR: acks=all is refused"
    UNDER_REPLICATED = "under-replicated: it works with fewer copies"
    HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class Change:
    """One row of a partition's history."""

    offset: int
    time_ms: int
    state: PartitionState
    cause: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``reasons`` and ``remedies`` are lines for people, the most important first."""

    health: Health
    reasons: tuple[str, ...]
    remedies: tuple[str, ...]


def partition_changes(history: MetadataHistory, topic: Topic, number: int) -> list[Change]:
    """Every change of a partition that is still known, in order."""
    changes = []
    first = history.first_image.partition(topic.topic_id, number)
    if first is not None:
        told = "this was the state when the known history begins"
        changes.append(Change(history.begins_at - 1, history.begins_at_ms, first, told))
    for decision in history.decisions:
        changes += _changes_in(decision, topic.topic_id, number)
    return changes


def _changes_in(decision: Decision, topic_id: bytes, number: int) -> Iterator[Change]:
    before = decision.before.partition(topic_id, number)
    after = decision.after.partition(topic_id, number)
    causes = PartitionCauses(decision)
    for place, record in enumerate(decision.records):
        offset = decision.offset + place
        if record.HasField("partition") and _is_of(record.partition, topic_id, number):
            yield Change(offset, decision.time_ms, state_of(record.partition), "it was created")
        elif (
            record.HasField("partition_change")
            and _is_of(record.partition_change, topic_id, number)
            and before is not None
            and after is not None
        ):
            cause = causes.of(record.partition_change, before, after)
            yield Change(offset, decision.time_ms, after, cause)


def _is_of(
    record: pb.PartitionRecord | pb.PartitionChangeRecord, topic_id: bytes, number: int
) -> bool:
    return record.topic_id == topic_id and record.partition == number


def health_of(image: MetadataImage, topic: Topic, state: PartitionState) -> Health:
    """A partition's health by the metadata alone."""
    if state.leader == NO_LEADER:
        return Health.OFFLINE
    enough = min(min_insync_replicas(image, topic.name), state.replication_factor)
    if len(state.isr) < enough:
        return Health.UNDER_MIN_ISR
    if len(state.isr) < state.replication_factor:
        return Health.UNDER_REPLICATED
    return Health.HEALTHY


def diagnose(history: MetadataHistory, topic: Topic, number: int) -> Diagnosis:
    """The faults of a partition at the end of the history."""
    image = history.image
    state = topic.partitions[number]
    health = health_of(image, topic, state)
    if health is Health.HEALTHY:
        return Diagnosis(health, (), ())
    missing = [each for each in state.replicas if each not in state.isr]
    reasons = [_why_absent(history, state, broker_id) for broker_id in missing]
    if health is Health.OFFLINE:
        holders = sorted({*state.isr, *state.elr})
        reasons = [_why_absent(history, state, each) for each in holders] + reasons
        return Diagnosis(health, tuple(dict.fromkeys(reasons)), _way_back(image, topic, state))
    if health is Health.UNDER_MIN_ISR:
        enough = min(min_insync_replicas(image, topic.name), state.replication_factor)
        reasons.insert(0, f"{len(state.isr)} in sync, and min.insync.replicas asks for {enough}")
    down = [each for each in missing if not image.is_active(each)]
    remedies = [f"start broker {each}; it joins the ISR when it has caught up" for each in down]
    remedies += [_repair(each) for each in missing if _is_without_disk(image, state, each)]
    behind = [
        each for each in missing if each not in down and not _is_without_disk(image, state, each)
    ]
    if behind:
        remedies.append(
            f"wait until {behind} have caught up; if that does not end, look at their logs, disks "
            "and network"
        )
    return Diagnosis(health, tuple(reasons), tuple(remedies))


def _way_back(image: MetadataImage, topic: Topic, state: PartitionState) -> tuple[str, ...]:
    """What gives an offline partition a leader."""
    holders = sorted({*state.isr, *state.elr})
    others = [each for each in state.replicas if each not in holders]
    remedies = []
    if holders:
        down = [each for each in holders if not _is_without_disk(image, state, each)]
        names = " or ".join(f"broker {each}" for each in down)
        if down:
            told = "every committed record is there, and it can lead at once"
            remedies.append(f"start {names}: {told}")
        remedies += [_repair(each) for each in holders if each not in down]
    else:
        remedies.append("no replica is known to have every record: each of them reported a loss")
    able = [each for each in others if image.is_active(each)] if holders else others
    able = [each for each in able if not _is_without_disk(image, state, each)]
    if able:
        remedies.append(
            f"if they are gone for good: brokers {able} have a part of the records, and "
            f"stele topic elect {topic.name} --unclean gives up the rest"
        )
    return tuple(remedies)


def _is_without_disk(image: MetadataImage, state: PartitionState, broker_id: int) -> bool:
    """Whether the broker works, and the log directory of its replica does not."""
    return image.is_active(broker_id) and not image.has_online(
        broker_id, state.directory_of(broker_id)
    )


def _repair(broker_id: int) -> str:
    return (
        f"repair the log directory of broker {broker_id}'s replica (stele cluster log-dirs), and"
        " restart the broker"
    )


def _why_absent(history: MetadataHistory, state: PartitionState, broker_id: int) -> str:
    """Why a broker does not have, or cannot lead, a partition, with the offset that says so."""
    registration = history.image.broker(broker_id)
    if registration is None:
        return f"broker {broker_id} is not registered"
    if _is_without_disk(history.image, state, broker_id):
        directory_id = state.directory_of(broker_id)
        which = "a log directory" if directory_id == LOST else encode_uuid(directory_id)
        return f"broker {broker_id} serves, and its replica is in {which}, which is offline"
    if registration.active:
        if registration.out_of_room:
            return f"broker {broker_id} has a full disk"
        return f"broker {broker_id} serves, and is behind"
    for decision in history.newest_first():
        for who, what in broker_events(decision):
            if who == broker_id:
                return f"broker {broker_id}: {what} (offset {decision.offset})"
    return f"broker {broker_id} has been fenced since before the known history"
