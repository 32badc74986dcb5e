"""The log's line for each change of a partition or a broker, with its cause."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from metadata.explain.causes import PartitionCauses, broker_events
from metadata.explain.history import Decision
from metadata.partitions import NO_LEADER, PartitionState
from stele.wire.v1 import metadata_pb2 as pb

logger = logging.getLogger(__name__)

LINES_MAX: Final = 20
"""The most lines of one decision. It is logged in one turn of the event loop, and may change many
partitions."""


def log_changes(decision: Decision) -> None:
    """Log the changes of a committed decision; a warning if records or replicas may be lost."""
    for broker_id, what in broker_events(decision):
        logger.info(
            "broker %d: %s (offset %d, epoch %d)", broker_id, what, decision.offset, decision.epoch
        )
    causes = PartitionCauses(decision)
    count = 0
    for count, (name, change, before, after) in enumerate(_changes(decision), 1):
        if count <= LINES_MAX:
            is_bad = change.unclean or after.leader == NO_LEADER
            level = logging.WARNING if is_bad else logging.INFO
            cause = causes.of(change, before, after)
            logger.log(level, "partition %s: %s: %s", name, _difference(before, after), cause)
    if count > LINES_MAX:
        logger.info(
            "offset %d: %d more partitions changed for the same reason; stele explain has them",
            decision.offset,
            count - LINES_MAX,
        )


def _changes(
    decision: Decision,
) -> Iterator[tuple[str, pb.PartitionChangeRecord, PartitionState, PartitionState]]:
    """Name, change, and state before and after, of each partition that was there before."""
    for record in decision.records:
        if not record.HasField("partition_change"):
            continue
        change = record.partition_change
        topic = decision.after.topic_by_id(change.topic_id)
        before = decision.before.partition(change.topic_id, change.partition)
        after = decision.after.partition(change.topic_id, change.partition)
        if topic is None or before is None or after is None:
            continue  # the same decision made it, or removed it
        yield f"{topic.name}-{change.partition}", change, before, after


def _difference(before: PartitionState, after: PartitionState) -> str:
    parts = []
    if (before.leader, before.leader_epoch) != (after.leader, after.leader_epoch):
        parts.append(f"leader {_name(before)} -> {_name(after)} in epoch {after.leader_epoch}")
    if before.isr != after.isr:
        parts.append(f"ISR {list(before.isr)} -> {list(after.isr)}")
    if before.elr != after.elr:
        parts.append(f"eligible {list(before.elr)} -> {list(after.elr)}")
    if before.replicas != after.replicas:
        parts.append(f"replicas {list(before.replicas)} -> {list(after.replicas)}")
    return ", ".join(parts) or f"partition epoch {after.partition_epoch}"


def _name(state: PartitionState) -> str:
    return "none" if state.leader == NO_LEADER else str(state.leader)
