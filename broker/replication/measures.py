"""The measurements of this broker's replicas, read anew at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from broker.replication.metadata import MetadataApplier
from broker.replication.replica import ReplicaState
from broker.replication.replicas import ReplicaCounters, Replicas
from broker.replication.traffic import TopicTraffic
from metadata.internal_topics import INTERNAL_TOPICS
from stele.ids import TopicPartition


class ReplicaMeasures:
    """Reads only."""

    def __init__(self, replicas: Replicas, applier: MetadataApplier) -> None:
        self._replicas = replicas
        self._applier = applier

    def counters(self) -> ReplicaCounters:
        """The totals, and the present values read anew."""
        counters = self._replicas.counters
        machines = [replica.machine for replica in self._replicas]
        counters.partition_count = len(machines)
        counters.producer_ids = sum(
            len(replica.log.producers)
            for replica in self._replicas
            if replica.state is ReplicaState.ONLINE
        )
        counters.leader_count = sum(machine.is_leader for machine in machines)
        counters.under_replicated = sum(machine.is_under_replicated for machine in machines)
        counters.under_min_isr = sum(
            machine.is_leader and machine.is_under_min_isr for machine in machines
        )
        counters.at_min_isr = sum(
            machine.is_leader and machine.is_at_min_isr for machine in machines
        )
        counters.reassigning = sum(
            machine.is_leader and machine.state.is_reassigning for machine in machines
        )
        counters.offline_replicas = self._applier.unmade + sum(
            replica.state is not ReplicaState.ONLINE for replica in self._replicas
        )
        return counters

    def traffic(self) -> Iterator[tuple[str, TopicTraffic]]:
        """The traffic of each topic that has a replica here, by name."""
        return iter(sorted(self._replicas.traffic.items()))

    def log_sizes(self) -> Iterator[tuple[TopicPartition, int]]:
        """Bytes of each log that is online here."""
        for replica in self._replicas:
            if replica.state is ReplicaState.ONLINE:
                yield TopicPartition(replica.topic, replica.id.partition), replica.log.size_bytes

    def replica_lags(self) -> Iterator[tuple[TopicPartition, int, int]]:
        """(partition, broker id of a follower, records that it lacks) of what is led here."""
        for replica in self._replicas:
            name = TopicPartition(replica.topic, replica.id.partition)
            for broker_id, lag in replica.machine.follower_lags():
                yield name, broker_id, lag

    def high_watermarks(self) -> Iterator[tuple[TopicPartition, int]]:
        """The high watermarks of the partitions that are led here, internal topics left out."""
        for replica in self._replicas:
            if replica.machine.is_leader and replica.topic not in INTERNAL_TOPICS:
                name = TopicPartition(replica.topic, replica.id.partition)
                yield name, replica.machine.high_watermark
