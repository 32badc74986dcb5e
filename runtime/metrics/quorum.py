"""A node's metrics of its replica of the metadata log (Kafka's raft-metrics)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from raft.api import LeaderAndEpoch
from raft.quorum import VoterSet
from raft.ready import Role
from runtime.metrics.registry import MetricsRegistry


class QuorumNumbers(Protocol):
    """Where the numbers come from: ``runtime.quorum.quorum.Quorum``."""

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def role(self) -> Role: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def voters(self) -> VoterSet: ...

    @property
    def elections(self) -> int: ...

    @property
    def delivered_offset(self) -> int: ...

    def on_commit_time(self, observe: Callable[[float], None]) -> None: ...


def declare_quorum_metrics(registry: MetricsRegistry, quorum: QuorumNumbers) -> None:
    """Declare them all; they are read at each scrape."""
    registry.gauges(
        "stele_quorum_state",
        "1 for what this replica of the metadata log is now (current-state).",
        "state",
        lambda: {role.value: float(role is quorum.role) for role in Role},
    )
    registry.gauge(
        "stele_quorum_leader",
        "Node id of the leader that this replica knows; -1: none (current-leader).",
        lambda: float(-1 if quorum.leader.leader_id is None else quorum.leader.leader_id),
    )
    registry.gauge(
        "stele_quorum_epoch",
        "The epoch of the quorum; each election raises it (current-epoch).",
        lambda: float(quorum.leader.epoch),
    )
    registry.gauge(
        "stele_quorum_voters",
        "How many controllers vote, by this replica (number-of-voters).",
        lambda: float(len(quorum.voters.voters)),
    )
    registry.gauge(
        "stele_quorum_high_watermark",
        "Everything below is committed, as far as this replica knows (high-watermark).",
        lambda: float(quorum.high_watermark),
    )
    registry.gauge(
        "stele_quorum_log_end_offset",
        "Where this replica's metadata log ends (log-end-offset).",
        lambda: float(quorum.log_end_offset),
    )
    registry.gauge(
        "stele_quorum_log_start_offset",
        "Where this replica's metadata log begins; a snapshot has everything before "
        "(log-start-offset).",
        lambda: float(quorum.log_start_offset),
    )
    registry.gauge(
        "stele_metadata_applied_offset",
        "This node acts on the metadata below it (last-applied-record-offset, one more).",
        lambda: float(quorum.delivered_offset),
    )
    registry.total(
        "stele_quorum_elections",
        "Changes of the leader that this replica has seen since it started.",
        lambda: float(quorum.elections),
    )
    seconds = registry.histograms(
        "stele_quorum_commit_seconds",
        "Time from a decision of this leader to its commit by a majority (commit-latency).",
        "log",
    )
    quorum.on_commit_time(seconds("__cluster_metadata").observe)
