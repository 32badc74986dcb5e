"""The partitions that a consumer reads."""

from __future__ import annotations

from collections.abc import Iterable

from stele.cluster.leader_requests import PartitionRetry
from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.fetcher import Fetcher
from stele.consumer.positions import PartitionPosition
from stele.ids import TopicPartition


class AssignedPartitions:
    """``positions`` has them in the order in which polls serve them."""

    def __init__(self, config: ConsumerConfig, view: ClusterView) -> None:
        self.positions: dict[TopicPartition, PartitionPosition] = {}
        self.fetcher = Fetcher(config, view, self.positions)
        self._view = view
        self._max_age_s = config.metadata_max_age_ms / 1000
        self._has_group = config.group_id is not None

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
        """Read these no more."""
        for name in partitions:
            position = self.positions.pop(name, None)
            if position is not None:
                position.generation += 1  # answers that are under way come too late

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, in this order. Those that stay keep their position."""
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
