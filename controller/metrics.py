"""The controller's metrics as plain numbers. ``runtime.metrics`` exposes them.

Gauges are computed from the committed image at each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER
from stele.wire.v1 import metadata_pb2 as pb


class ControllerMetrics:
    """Counters of this controller's decisions, and gauges of the committed image."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self.active = False  # kafka.controller:ActiveControllerCount
        self.fencings = 0
        self.leader_changes = 0  # of partitions, including changes to no leader
        self.unclean_elections = 0  # kafka.controller:UncleanLeaderElectionsPerSec
        self.timed_out_brokers = 0  # fenced because they were silent or gone

    def count(self, records: Iterable[pb.MetadataRecord]) -> None:
        """Count the records of one decision."""
        for record in records:
            if record.HasField("partition_change"):
                self.leader_changes += record.partition_change.HasField("leader")
                self.unclean_elections += record.partition_change.unclean
            elif record.HasField("broker_state"):
                self.fencings += record.broker_state.fenced

    @property
    def fenced_brokers(self) -> int:
        return sum(broker.fenced for broker in self._image().brokers.values())

    @property
    def active_brokers(self) -> int:
        return sum(not broker.fenced for broker in self._image().brokers.values())

    @property
    def topics(self) -> int:
        return len(self._image().topics)

    @property
    def partitions(self) -> int:
        return sum(len(topic.partitions) for topic in self._image().topics.values())

    @property
    def offline_partitions(self) -> int:
        """Partitions without a leader."""
        return sum(
            state.leader == NO_LEADER
            for topic in self._image().topics.values()
            for state in topic.partitions
        )

    @property
    def preferred_replica_imbalance(self) -> int:
        """Partitions whose leader is not their preferred replica."""
        return sum(
            state.leader != state.preferred_leader
            for topic in self._image().topics.values()
            for state in topic.partitions
        )
