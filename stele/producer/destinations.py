"""Where records go: the partition of each, and its queue."""

from __future__ import annotations

from stele.cluster.leader_requests import PartitionRetry
from stele.cluster.view import ClusterView, KnownTopic
from stele.config import ProducerConfig
from stele.errors import ApiError, ErrorCode, SteleError
from stele.ids import TopicPartition
from stele.producer.accumulator import Accumulator, PartitionQueue, PendingBatch
from stele.producer.idempotence import Lane
from stele.producer.partitioner import (
    StickyPartitioner,
    partition_of_hash,
    remembered_partition_of,
)
from stele.producer.runs import FIELDS, divide, topic_of
from stele.wire.record import OutgoingRecord


class TopicUnknownError(SteleError):
    """``send_nowait`` was called for a topic whose partitions are not known yet. Use ``send``
    first."""


class Destinations:
    """The queues of one producer."""

    def __init__(self, config: ProducerConfig, view: ClusterView) -> None:
        self._config = config
        self._view = view
        self._queues: dict[str, dict[int, PartitionQueue]] = {}  # by topic and partition
        self._sticky: dict[str, StickyPartitioner] = {}

    def of_hash(self, topic: str, key_hash: int) -> int | None:
        """The partition of a key with this hash; None while the topic is not known."""
        view = self._view.topic(topic)
        if view is None or not view.partitions:
            return None
        return partition_of_hash(key_hash, len(view.partitions))

    def queue_for(
        self,
        topic: str,
        view: KnownTopic | None,
        key: bytes | None,
        partition: int | None,
        size: int,
    ) -> PartitionQueue:
        """The queue of a partition, or of the one that is chosen for the key."""
        if view is None or not view.partitions:
            raise TopicUnknownError(f"the partitions of topic {topic!r} are not known yet")
        if partition is None:
            if key is not None:
                partition = remembered_partition_of(key, len(view.partitions))
            else:
                available = view.available or sorted(view.partitions)
                partition = self._sticky_of(view).choose(available, size)
        elif partition not in view.partitions:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has partitions 0 to {len(view.partitions) - 1}, not {partition}",
            )
        queues = self._queues.get(topic)
        queue = None if queues is None else queues.get(partition)
        return queue or self._new_queue(TopicPartition(topic, partition))

    def _sticky_of(self, view: KnownTopic) -> StickyPartitioner:
        sticky = self._sticky.get(view.name)
        if sticky is None:
            sticky = StickyPartitioner(self._view.world.rng, self._config.batch_size)
            self._sticky[view.name] = sticky
        return sticky

    def take_run(
        self,
        buffer: Accumulator,
        records: list[OutgoingRecord],
        start: int,
        now_ms: int,
        now: float,
        *,
        field_count: int = FIELDS,
        room_bytes: int,
        are_waited_for: bool = False,
    ) -> tuple[int, int, bool]:
        """Put the run that begins at ``start`` into batches. Returns the number of its records,
        their size, and whether the sender should look at their queues. No records: the first one
        has to go alone."""
        topic = topic_of(records[start], field_count)
        view = None if topic is None else self._view.topic(topic)
        if topic is None or view is None or not view.partitions:
            return 0, 0, False
        count = len(view.partitions)
        if max(view.partitions) != count - 1:  # the numbers between are not known yet
            return 0, 0, False
        sticky, available = self._sticky_of(view), view.available or sorted(view.partitions)
        keyless_partition, keyless_bytes = sticky.stay(available)
        run = divide(
            records,
            start,
            topic,
            field_count=field_count,
            partition_count=count,
            room_bytes=room_bytes,
            largest_bytes=buffer.largest_record_bytes,
            keyless_partition=keyless_partition,
            keyless_bytes=keyless_bytes,
        )
        if run.keyless_size:
            sticky.choose(available, run.keyless_size)
        buffer.reserve(run.size)
        news = False
        for partition, group in run.by_partition.items():
            queue = self.queue_for(topic, view, None, partition, 0)
            may_stick = bool(run.keyless_size) and partition == keyless_partition
            news |= buffer.append_run(
                queue, group, now_ms, now, may_stick=may_stick, are_waited_for=are_waited_for
            )
        return run.record_count, run.size, news

    def _new_queue(self, name: TopicPartition) -> PartitionQueue:
        lane: Lane[PendingBatch] = Lane(numbered=self._config.idempotent)
        retry = PartitionRetry(name, self._view)
        queue = PartitionQueue(name, lane, retry, self._config.batch_size)
        self._queues.setdefault(name.topic, {})[name.partition] = queue
        return queue

    def on_drained(self, batch: PendingBatch) -> None:
        """A batch was sent before it was full: move keyless records to another partition, to spread
        them."""
        topic = batch.partition.topic
        view = self._view.topic(topic)
        if batch.is_sticky and view is not None and len(view.available) > 1:
            self._sticky[topic].move_on(view.available)
