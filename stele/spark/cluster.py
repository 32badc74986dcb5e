"""Questions to the cluster about topics and offsets, for the driver's side of a query."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from stele.errors import BulkError, ErrorCode
from stele.ids import TopicPartition
from stele.spark.client_settings import of_admins
from stele.spark.offsets import Logs, OffsetRange, times_wanted
from stele.spark.options import SourceOptions

if TYPE_CHECKING:
    from stele import Admin, Consumer
    from stele.admin.descriptions import TopicDescription

log = logging.getLogger(__name__)

SAMPLED_FROM = 10_000
"""Ranges with fewer records are not worth a look at their size."""


GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""A partition that does not exist, as an answer."""


class MissingTopicError(Exception):
    """A topic or partition that the query names does not exist."""


def open_consumer(options: SourceOptions) -> Consumer:
    """A consumer that reports every loss, whatever ``failOnDataLoss`` says."""
    from stele import Consumer  # loaded where it runs: Spark forks its workers

    settings: dict[str, Any] = {
        "max_partition_fetch_bytes": 4 * 1024 * 1024,
        **options.client,
        "auto_offset_reset": "none",
    }
    if options.isolation_level == "read_committed":
        settings["isolation_level"] = options.isolation_level
    return Consumer(options.bootstrap_servers, **settings)


def open_admin(options: SourceOptions) -> Admin:
    from stele import Admin

    return Admin(options.bootstrap_servers, **of_admins(options.client))


def described(admin: Admin, names: Sequence[str]) -> list[TopicDescription]:
    """The topics that exist, described. Raises BulkError."""
    try:
        return admin.describe_topics(names)
    except BulkError as error:
        for each in error.failed.values():
            if each.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        left = [name for name in names if name not in error.failed]
        return described(admin, left) if left else []


def is_there(options: SourceOptions, range_: OffsetRange) -> bool:
    """Whether the controllers know the partition, of the same topic."""
    with open_admin(options) as admin:
        found = described(admin, [range_.topic])
    return any(
        topic.topic_id == (range_.topic_id or topic.topic_id)
        and any(each.partition == range_.partition for each in topic.partitions)
        for topic in found
    )


@dataclass(frozen=True, slots=True)
class Topics:
    """The partitions that a query reads, in order, and the ids of their topics."""

    partitions: tuple[TopicPartition, ...]
    ids: Mapping[str, bytes]


class Cluster:
    """What the partitions of a query are, and what their logs hold."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._consumer = open_consumer(options)
        self._admin = open_admin(options)
        self._lacking: list[str] = []  # what the last warning named

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()
        self._admin.close()

    def topics(self, *, may_lack: bool = False) -> Topics:
        """What the query reads, as the controllers know it. ``may_lack``: what does not exist is
        left out, with a warning. Raises MissingTopicError, UnreachableError."""
        wanted = self._options.subscription
        if wanted.pattern is not None:
            found = [each for each in self._admin.list_topics() if wanted.has_topic(each.name)]
        else:
            found = described(self._admin, wanted.names)
        there = {
            TopicPartition(topic.name, each.partition)
            for topic in found
            for each in topic.partitions
        }
        names = {each.name for each in found}
        lacking = [f"topic {name!r}" for name in wanted.names if name not in names] or [
            f"partition {each}" for each in sorted(set(wanted.partitions) - there)
        ]
        if lacking and not may_lack:
            raise MissingTopicError(f"there is no {lacking[0]}")
        if lacking and lacking != self._lacking:
            log.warning("the query goes on without %s: it does not exist", ", ".join(lacking))
        self._lacking = lacking
        chosen = there.intersection(wanted.partitions) if wanted.partitions else there
        return Topics(tuple(sorted(chosen)), {each.name: each.topic_id for each in found})

    def logs(
        self,
        partitions: Sequence[TopicPartition],
        times: Iterable[tuple[TopicPartition, int]] = (),
    ) -> Logs:
        consumer = self._consumer
        found: dict[tuple[TopicPartition, int], int | None] = {}
        by_time: dict[int, list[TopicPartition]] = {}
        for name, time_ms in times:
            by_time.setdefault(time_ms, []).append(name)
        for time_ms, names in by_time.items():
            answers = consumer.offsets_for_times(dict.fromkeys(names, time_ms))
            for name, answer in answers.items():
                found[name, time_ms] = None if answer is None else answer.offset
        return Logs(
            consumer.beginning_offsets(partitions),
            consumer.end_offsets(partitions),
            found,
        )

    def logs_of(self, topics: Topics) -> Logs:
        """The logs, with the times of the options."""
        bounds = (self._options.start, self._options.end)
        logs = self.logs(topics.partitions, times_wanted(bounds, topics.partitions))
        return replace(logs, topic_ids=topics.ids)

    def record_bytes(self, starts: dict[TopicPartition, int]) -> dict[TopicPartition, float]:
        """An estimate of a record's size in each partition: that of the batch at this offset. Where
        none comes soon, there is no estimate."""
        consumer = self._consumer
        consumer.assign(starts)
        for (topic, partition), offset in starts.items():
            consumer.seek(topic, partition, offset)
        sizes: dict[TopicPartition, float] = {}
        while len(sizes) < len(starts):
            batches = consumer.poll_batches(1, timeout_ms=2_000)
            if not batches:
                break
            for each in batches:
                count = each.header.last_offset_delta + 1
                sizes.setdefault(each.partition, each.header.size_bytes / count)
                consumer.pause(each.partition)
        consumer.assign([])
        return sizes
