"""Which partitions a command is about: ``--topic t`` and ``--topic t:0,1``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cli.connection import no_such_topic
from cli.output import CommandError, UsageError
from stele.ids import TopicPartition

if TYPE_CHECKING:
    from stele.sync import Admin


def known_partitions(admin: Admin) -> dict[str, list[int]]:
    """The numbers of the partitions of every topic."""
    return {
        topic.name: [each.partition for each in topic.partitions] for topic in admin.list_topics()
    }


def selected(wanted: Iterable[str], known: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    """The partitions of ``--topic`` options, sorted. ``known`` has the cluster's, by topic.

    Raises CommandError for a topic or partition that does not exist.
    """
    found: set[TopicPartition] = set()
    for each in wanted:
        topic, colon, numbers = each.partition(":")
        if topic not in known:
            raise no_such_topic(topic, known)
        for number in _numbers(each, numbers) if colon else known[topic]:
            found.add(TopicPartition(topic, number))
    check_exist(found, known)
    return sorted(found)


def check_exist(partitions: Iterable[TopicPartition], known: Mapping[str, Sequence[int]]) -> None:
    """Raises CommandError for the first partition that does not exist."""
    for topic, number in sorted(partitions):
        if topic not in known:
            raise no_such_topic(topic, known)
        if number not in known[topic]:
            raise CommandError(
                f"topic {topic!r} has no partition {number}: it has {len(known[topic])}"
            )


def _numbers(option: str, text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() and part.isascii() for part in parts):
        raise UsageError(f"--topic {option!r} is not of the form TOPIC or TOPIC:0,1,2")
    return [int(part) for part in parts]
