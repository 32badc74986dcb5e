"""The partitions of a member as text."""

from __future__ import annotations

from collections.abc import Sequence

from stele.ids import TopicPartition


def assignment_text(partitions: Sequence[TopicPartition]) -> str:
    """``t:0,1;u:0``, as Kafka's tool prints it."""
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(number))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items())
