"""A controller's metrics of itself and of the whole cluster (kafka.controller's meanings)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from runtime.metrics.registry import MetricsRegistry


class ControllerNumbers(Protocol):
    """Where the numbers come from: ``controller.metrics.ControllerMetrics``."""

    active: bool
    fencings: int
    leader_changes: int
    unclean_elections: int
    timed_out_brokers: int

    @property
    def fenced_brokers(self) -> int: ...

    @property
    def active_brokers(self) -> int: ...

    @property
    def topics(self) -> int: ...

    @property
    def partitions(self) -> int: ...

    @property
    def offline_partitions(self) -> int: ...

    @property
    def preferred_replica_imbalance(self) -> int: ...


_TOTALS = (
    ("stele_broker_fencings", "fencings", "Brokers fenced by this controller."),
    (
        "stele_partition_leader_changes",
        "leader_changes",
        "Changes of partitions' leaders decided by this controller (LeaderElectionRateAndTimeMs).",
    ),
    (
        "stele_unclean_leader_elections",
        "unclean_elections",
        "Elections of replicas that may lack committed records (UncleanLeaderElectionsPerSec).",
    ),
    (
        "stele_timed_out_brokers",
        "timed_out_brokers",
        "Brokers given up as silent or gone (TimedOutBrokerHeartbeatCount).",
    ),
)

# Of the whole cluster: told by the active controller only, so that a sum over all is right.
_CLUSTER = (
    (
        "stele_offline_partitions_count",
        "offline_partitions",
        "Partitions without a leader (OfflinePartitionsCount).",
    ),
    (
        "stele_preferred_replica_imbalance_count",
        "preferred_replica_imbalance",
        "Partitions not led by their first replica (PreferredReplicaImbalanceCount).",
    ),
    (
        "stele_global_partition_count",
        "partitions",
        "Partitions of the cluster (GlobalPartitionCount).",
    ),
    ("stele_global_topic_count", "topics", "Topics of the cluster (GlobalTopicCount)."),
    (
        "stele_active_broker_count",
        "active_brokers",
        "Registered brokers that are not fenced (ActiveBrokerCount).",
    ),
    (
        "stele_fenced_broker_count",
        "fenced_brokers",
        "Registered brokers that are fenced (FencedBrokerCount).",
    ),
)


def declare_controller_metrics(registry: MetricsRegistry, numbers: ControllerNumbers) -> None:
    """Declare all metrics. A controller that is not active has 0 for the whole cluster."""
    registry.gauge(
        "stele_controller_active_count",
        "1 on the active controller, 0 elsewhere; the sum must be 1 (ActiveControllerCount).",
        lambda: float(numbers.active),
    )
    for name, attribute, help_text in _TOTALS:
        registry.total(name, help_text, _reader(numbers, attribute))
    for name, attribute, help_text in _CLUSTER:
        registry.gauge(name, help_text, _reader_if_active(numbers, attribute))


def _reader(numbers: ControllerNumbers, attribute: str) -> Callable[[], float]:
    return lambda: float(getattr(numbers, attribute))


def _reader_if_active(numbers: ControllerNumbers, attribute: str) -> Callable[[], float]:
    return lambda: float(getattr(numbers, attribute)) if numbers.active else 0.0
