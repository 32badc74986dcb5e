"""How far a stream has come, and how far its next batch goes. Pure.

Spark keeps the offsets of each batch in the checkpoint of the query, as JSON. They contain the id
of each topic: a topic that was deleted and created again under the same name is another one, whose
offsets begin at 0.

A partition or topic that is found while the query runs first appears at the beginning of its log,
and is read from the next batch on. So the offsets alone say what each batch reads, also when Spark
runs it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stele.ids import TopicPartition
from stele.spark.offsets import DataLossError, Logs, OffsetRange, missing
from stele.spark.options import Subscription


class CheckpointError(Exception):
    """The checkpoint belongs to another query."""


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The offset of the next record to read in each partition."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, bytes]

    def to_json(self) -> dict[str, Any]:
        """Equal offsets have equal texts: Spark compares them."""
        topics: dict[str, dict[str, Any]] = {}
        for name in sorted(self.offsets):
            entry = topics.setdefault(
                name.topic, {"id": self.topic_ids.get(name.topic, b"").hex(), "offsets": {}}
            )
            entry["offsets"][str(name.partition)] = self.offsets[name]
        return {"topics": topics}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffsets:
        """Raises CheckpointError for what ``to_json`` has not made."""
        try:
            topics = value["topics"]
            offsets = {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, entry in topics.items()
                for partition, offset in entry["offsets"].items()
            }
            ids = {topic: bytes.fromhex(entry["id"]) for topic, entry in topics.items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f'the checkpoint has no offsets of format "stele", but {value!r}: give each query '
                "its own checkpointLocation"
            ) from error
        return cls(offsets, ids)


def check_subscription(start: StreamOffsets, subscription: Subscription) -> None:
    """Raises CheckpointError if no topic of the checkpoint belongs to the query. A topic that was
    deleted belongs to it."""
    topics = sorted({name.topic for name in start.offsets})
    if topics and not any(map(subscription.has_topic, topics)):
        raise CheckpointError(
            f"the checkpoint is of the topics {', '.join(topics)}, but the query reads "
            f"{subscription}: give each query its own checkpointLocation"
        )


def next_offsets(
    start: StreamOffsets,
    logs: Logs,
    *,
    max_rows: int | None = None,
    min_rows: int = 0,
    fail_on_data_loss: bool = True,
) -> StreamOffsets:
    """The end of the next batch, if it begins at ``start``. ``start`` itself if there is
    nothing.

    The batch has at most ``max_rows`` offsets, in proportion to the backlog of each partition. If
    all partitions together have fewer than ``min_rows``, there is no batch. ``logs`` has all
    partitions that the query reads now. Raises DataLossError.
    """
    begins, offsets = _begins(start, logs, fail_on_data_loss)
    there = {name: max(logs.ends[name] - begin, 0) for name, begin in begins.items()}
    total = sum(there.values())
    taken = there if total >= min_rows else dict.fromkeys(there, 0)
    if max_rows is not None and total > max_rows:
        taken = shares(taken, max_rows)
    offsets.update({name: begins[name] + count for name, count in taken.items()})
    return StreamOffsets(offsets, {name.topic: logs.topic_ids[name.topic] for name in offsets})


def _begins(
    start: StreamOffsets, logs: Logs, fail_on_data_loss: bool
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The next offsets of the partitions that the query knows, and the first offsets of its new
    partitions.
    """
    begins: dict[TopicPartition, int] = {}
    new: dict[TopicPartition, int] = {}
    for name, offset in start.offsets.items():
        loss = _loss(name, offset, start, logs)
        if loss is not None and fail_on_data_loss:
            raise loss
        if name not in logs.ends:
            continue
        if start.topic_ids[name.topic] != logs.topic_ids[name.topic]:
            new[name] = logs.beginnings[name]
        else:
            begins[name] = min(max(offset, logs.beginnings[name]), logs.ends[name])
    new.update({name: low for name, low in logs.beginnings.items() if name not in start.offsets})
    return begins, new


def _loss(
    name: TopicPartition, offset: int, start: StreamOffsets, logs: Logs
) -> DataLossError | None:
    advice = "failOnDataLoss=false goes on with what exists"
    if name not in logs.ends:
        return DataLossError(f"{name}, which the query reads, does not exist any more; {advice}")
    if start.topic_ids[name.topic] != logs.topic_ids[name.topic]:
        return DataLossError(
            f"topic {name.topic!r} was deleted and created again since the last batch, its offsets "
            f"begin anew; {advice}"
        )
    low, high = logs.beginnings[name], logs.ends[name]
    if not low <= offset <= high:
        return missing(name, f"the next batch begins at {offset}", low, high)
    return None


def shares(there: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Divide ``limit`` rows among partitions in proportion to their backlogs, which are more in
    all.

    Each partition with a backlog gets one row at least, so that none waits for ever behind larger
    ones. If there are more partitions than rows, those with the largest backlogs get one.
    """
    taken = dict.fromkeys(there, 0)
    some = sorted((name for name, count in there.items() if count), key=lambda n: (-there[n], n))
    for name in some[:limit]:
        taken[name] = 1
    left = limit - len(some[:limit])
    rest = sum(there[name] - 1 for name in some)
    for name in some:
        more = left * (there[name] - 1) // rest if left and rest else 0
        taken[name] += more
    spare = limit - sum(taken.values())
    for name in some:
        more = min(spare, there[name] - taken[name])
        taken[name] += more
        spare -= more
    return taken


def ranges(start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
    """What the batch from ``start`` to ``end`` reads. Ranges without records are left out."""
    found = []
    for name, high in sorted(end.offsets.items()):
        topic_id = end.topic_ids[name.topic]
        low = start.offsets.get(name, high)
        if start.topic_ids.get(name.topic) == topic_id and low < high:
            found.append(OffsetRange(*name, low, high, topic_id))
    return found
