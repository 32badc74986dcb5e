"""The partitions that a consumer reads, and the records of them that its polls hand out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stele.cluster.leader_requests import PartitionRetry
from stele.cluster.metrics_push import Measured
from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.fetcher import Fetcher
from stele.consumer.polled import PolledRows, RowsOf
from stele.consumer.positions import PartitionPosition, Progress, RawBatch
from stele.errors import ApiError, SteleError, UnreadableBatchError
from stele.ids import TopicPartition
from stele.records import ConsumerRecord

_METRICS = "org.apache.kafka.consumer."
"""Begins the names of a consumer's metrics. The time of throttles is in milliseconds."""


class AssignedPartitions:
    """``positions`` has them in the order in which polls serve them."""

    def __init__(self, config: ConsumerConfig, view: ClusterView) -> None:
        self.positions: dict[TopicPartition, PartitionPosition] = {}
        self.fetcher = Fetcher(config, view, self.positions)
        self._view = view
        self._max_age_s = config.metadata_max_age_ms / 1000
        self._has_group = config.group_id is not None
        self._check_crcs = config.check_crcs
        self._reads_committed = config.reads_committed
        self._consumed_records = 0
        view.metrics.begin(self._measured)

    def _measured(self) -> Measured:
        lags = [
            each.high_watermark - each.offset
            for each in self.positions.values()
            if each.offset is not None
        ]  # below 0 while the high watermark is not known
        return Measured(
            {
                f"{_METRICS}assigned.partitions": len(self.positions),
                f"{_METRICS}fetch.manager.records.lag.max": max([0, *lags]),
            },
            {
                f"{_METRICS}connection.creation.total": self._view.metrics.connections,
                f"{_METRICS}fetch.manager.records.consumed.total": self._consumed_records,
                f"{_METRICS}fetch.manager.fetch.throttle.time.total": self.fetcher.throttled_s
                * 1000,
            },
        )

    def take(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these as well, with a group from its committed offsets on."""
        for name in partitions:
            self._view.want(name.topic)
            retry = PartitionRetry(name, self._view)
            position = PartitionPosition(name, retry, self._max_age_s)
            position.awaits_committed = self._has_group
            self.positions[name] = position
        self.fetcher.wake()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions."""
        for name in partitions:
            position = self.positions.pop(name, None)
            if position is not None:
                position.generation += 1  # answers that are under way come too late

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, in this order. A partition that stays keeps its
        position.
        """
        names = list(dict.fromkeys(partitions))
        kept = {name: self.positions[name] for name in names if name in self.positions}
        self.drop([name for name in self.positions if name not in kept])
        self.positions.clear()
        for name in names:
            if name in kept:
                self.positions[name] = kept[name]
            else:
                self.take([name])
        self.fetcher.wake()

    def announce(self) -> None:
        """Wake a poll, and the fetcher: there is something to do, such as a start that is known
        now."""
        self.fetcher.announce()
        self.fetcher.wake()

    # ------------------------------------------------------------------------ handing out

    def hand_out(self, limit: int) -> list[ConsumerRecord]:
        """Fetched records, at most ``limit``. Their positions move behind them."""
        taken: list[ConsumerRecord] = []
        served: list[TopicPartition] = []
        for name, position in self.positions.items():
            if position.has_buffer and not position.paused:
                try:
                    records = position.hand_out(limit - len(taken), check_crcs=self._check_crcs)
                except UnreadableBatchError as error:
                    # Raised by the next poll: records of other partitions are not lost.
                    position.error = error
                    self.fetcher.announce()
                    continue
                taken = taken + records if taken else records
                served.append(name)
                if len(taken) >= limit:
                    break
        if served:
            for name in served:  # moved behind the others, with which the next poll begins
                self.positions[name] = self.positions.pop(name)
            self.fetcher.wake()
        self._consumed_records += len(taken)
        return taken

    def hand_out_batches(self, max_bytes: int) -> list[RawBatch] | None:
        """Fetched batches of one partition, some ``max_bytes``. None: there are none."""
        for name, position in self.positions.items():
            if position.has_buffer and not position.paused:
                taken = position.hand_out_batches(max_bytes)
                self._consumed_records += sum(each.header.record_count for each in taken)
                self.positions[name] = self.positions.pop(name)
                self.fetcher.wake()
                return taken
        return None

    def hand_out_rows(self, max_bytes: int, rows_of: RowsOf) -> list[PolledRows]:
        """Fetched records as rows, some ``max_bytes`` of batches. Their positions move behind
        them."""
        taken: list[PolledRows] = []
        served: list[TopicPartition] = []
        for name, position in self.positions.items():
            if position.has_buffer and not position.paused:
                before, buffered_bytes = position.offset or 0, position.buffered_bytes
                try:
                    rows = position.hand_out_rows(max_bytes, rows_of)
                except UnreadableBatchError as error:
                    position.error = error  # as in ``hand_out``
                    self.fetcher.announce()
                    continue
                taken += [PolledRows(name, before, each) for each in rows]
                self._consumed_records += sum(len(each) for each in rows)
                served.append(name)
                max_bytes -= buffered_bytes - position.buffered_bytes
                if taken and max_bytes <= 0:
                    break
        if served:
            for name in served:
                self.positions[name] = self.positions.pop(name)
            self.fetcher.wake()
        return taken

    def put_back(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Hand out the records from these offsets on again. Partitions that are not assigned any
        more are passed over."""
        for name, offset in offsets.items():
            position = self.positions.get(name)
            if position is not None:
                position.return_to(offset)
        self.fetcher.wake()

    def take_progress(self) -> Iterator[tuple[TopicPartition, Progress]]:
        """The progress of each partition that has some since the last call."""
        for name, position in self.positions.items():
            progress = position.take_progress(is_committed=self._reads_committed)
            if progress is not None:
                yield name, progress

    def take_error(self) -> SteleError | None:
        """The error that stops a partition, unless the partition is paused. One about a missing
        right is returned once: from then on all partitions find out anew whether they have it."""
        for position in self.positions.values():
            if (error := position.stopped_by) is not None and not position.paused:
                self.forget_denials(error)
                return error
        return None

    def forget_denials(self, error: SteleError) -> None:
        """The application hears this error now."""
        if isinstance(error, ApiError) and error.code.is_denial:
            for position in self.positions.values():
                position.forget_denial()
            self.fetcher.wake()
