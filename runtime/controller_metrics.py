"""What an active controller shows of the whole cluster (kafka.controller's meanings)."""

from __future__ import annotations

from collections.abc import Callable

from metadata.image import NO_LEADER, MetadataImage, PartitionState
from runtime.metrics import MetricsRegistry


def declare_controller_metrics(
    registry: MetricsRegistry,
    *,
    image: Callable[[], MetadataImage],
    active: Callable[[], bool],
) -> None:
    """Declare them; those of the whole cluster are 0 on a controller that is not active."""

    def partitions_where(holds: Callable[[PartitionState], bool]) -> Callable[[], float]:
        def count() -> float:
            if not active():
                return 0
            return sum(holds(state) for t in image().topics.values() for state in t.partitions)

        return count

    def brokers_where(fenced: bool) -> Callable[[], float]:
        def count() -> float:
            if not active():
                return 0
            return sum(broker.fenced == fenced for broker in image().brokers.values())

        return count

    def unclean_elections() -> float:
        if not active():
            return 0
        return sum(s.unclean_elections for t in image().topics.values() for s in t.partitions)

    registry.gauge(
        "stele_controller_active_count",
        "1 on the active controller, 0 elsewhere; the sum must be 1 (ActiveControllerCount).",
        lambda: float(active()),
    )
    registry.gauge(
        "stele_offline_partitions_count",
        "Partitions without a leader (OfflinePartitionsCount).",
        partitions_where(lambda state: state.leader == NO_LEADER),
    )
    registry.gauge(
        "stele_controller_under_replicated_partitions",
        "Partitions of the cluster with fewer replicas in sync than assigned.",
        partitions_where(lambda state: len(state.isr) < len(state.replicas)),
    )
    registry.gauge(
        "stele_preferred_replica_imbalance_count",
        "Partitions not led by their first replica (PreferredReplicaImbalanceCount).",
        partitions_where(lambda state: state.leader != state.preferred_leader),
    )
    registry.gauge(
        "stele_global_partition_count",
        "Partitions of the cluster (GlobalPartitionCount).",
        partitions_where(lambda state: True),
    )
    registry.gauge(
        "stele_global_topic_count",
        "Topics of the cluster (GlobalTopicCount).",
        lambda: float(len(image().topics)) if active() else 0,
    )
    registry.gauge(
        "stele_active_broker_count",
        "Registered brokers that are not fenced (ActiveBrokerCount).",
        brokers_where(fenced=False),
    )
    registry.gauge(
        "stele_fenced_broker_count",
        "Registered brokers that are fenced (FencedBrokerCount).",
        brokers_where(fenced=True),
    )
    registry.gauge(
        "stele_unclean_leader_elections",
        "Elections of replicas that may lack committed records, over the life of all topics.",
        unclean_elections,
    )
    registry.gauge(
        "stele_last_applied_record_offset",
        "Offset of the last metadata record applied here (LastAppliedRecordOffset).",
        lambda: float(image().offset),
    )
