"""The metrics of a controller at /metrics."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.metrics.controller import declare_controller_metrics
from runtime.metrics.registry import MetricsRegistry


@dataclass
class _Numbers:
    active: bool = True
    fencings: int = 1
    leader_changes: int = 2
    unclean_elections: int = 3
    timed_out_brokers: int = 4
    fenced_brokers: int = 5
    active_brokers: int = 6
    topics: int = 7
    partitions: int = 8
    offline_partitions: int = 9
    preferred_replica_imbalance: int = 10


def test_the_active_controller_tells_of_the_whole_cluster() -> None:
    registry = MetricsRegistry()
    declare_controller_metrics(registry, _Numbers())
    values = registry.values()
    assert values["stele_controller_active_count"] == 1
    assert values["stele_offline_partitions_count"] == 9
    assert values["stele_unclean_leader_elections_total"] == 3
    assert values["stele_active_broker_count"] == 6


def test_the_others_tell_of_themselves_only() -> None:
    registry = MetricsRegistry()
    declare_controller_metrics(registry, _Numbers(active=False))
    values = registry.values()
    assert values["stele_controller_active_count"] == 0
    assert values["stele_offline_partitions_count"] == 0
    assert values["stele_unclean_leader_elections_total"] == 3
