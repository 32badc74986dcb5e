"""What one topic's replicas on this broker have moved. Kafka's BrokerTopicMetrics, by topic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, weakref_slot=True)
class TopicTraffic:
    """Plain totals since the start, or since the topic came to this broker."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_bytes_out: int = 0
