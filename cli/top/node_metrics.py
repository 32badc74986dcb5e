"""What ``stele top`` takes from a node's ``/metrics``."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

_WANTED: Final = (
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "stele_requests_total",
    "stele_request_queue_seconds_sum",
    "stele_request_queue_seconds_count",
    "stele_topic_messages_in_total",
    "stele_topic_bytes_in_total",
    "stele_topic_bytes_out_total",
    "stele_topic_replication_bytes_out_total",
    "stele_under_replicated_partitions",
    "stele_event_loop_lag_max_seconds",
    "stele_quota_usage",
)

Client = tuple[str, str]
"""The user and the client id of a quota."""

Totals = defaultdict[str, float]


def _totals() -> Totals:
    return defaultdict(float)


@dataclass(slots=True)
class NodeMetrics:
    """A look at a node. Totals count from the start of its process."""

    at_s: float
    """When the node was asked."""
    cpu_s: float = 0.0
    memory_bytes: float = 0.0
    requests: float = 0.0
    queued: float = 0.0
    """Requests that waited until the one before on their connection was answered."""
    queued_s: float = 0.0
    """How long they waited, all together."""
    replication_bytes_out: float = 0.0
    under_replicated: float | None = None
    """None: the node is no broker."""
    loop_lag_s: float = 0.0
    """The longest since the look before, whoever looked."""
    messages_in: Totals = field(default_factory=_totals)
    bytes_in: Totals = field(default_factory=_totals)
    bytes_out: Totals = field(default_factory=_totals)
    """By topic; to consumers."""
    quota_usage: dict[tuple[Client, str], float] = field(default_factory=dict)
    """By client and kind of quota, of clients that have quotas."""

    def take(self, name: str, labels: dict[str, str], value: float) -> None:
        topic = labels.get("topic", "")
        match name:
            case "process_cpu_seconds_total":
                self.cpu_s = value
            case "process_resident_memory_bytes":
                self.memory_bytes = value
            case "stele_requests_total":
                self.requests += value
            case "stele_request_queue_seconds_count":
                self.queued += value
            case "stele_request_queue_seconds_sum":
                self.queued_s += value
            case "stele_topic_messages_in_total":
                self.messages_in[topic] += value
            case "stele_topic_bytes_in_total":
                self.bytes_in[topic] += value
            case "stele_topic_bytes_out_total":
                self.bytes_out[topic] += value
            case "stele_topic_replication_bytes_out_total":
                self.replication_bytes_out += value
            case "stele_under_replicated_partitions":
                self.under_replicated = value
            case "stele_event_loop_lag_max_seconds":
                self.loop_lag_s = value
            case "stele_quota_usage":
                client = labels.get("user", ""), labels.get("client_id", "")
                self.quota_usage[client, labels.get("quota", "")] = value


def parse(text: str, at_s: float) -> NodeMetrics:
    """Raises ValueError if the text is no page of metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    # The other lines are many: there are some for each partition.
    lines = "".join(f"{line}\n" for line in text.splitlines() if line.startswith(_WANTED))
    found = NodeMetrics(at_s)
    for family in text_string_to_metric_families(lines):
        for sample in family.samples:
            found.take(sample.name, sample.labels, sample.value)
    return found
