"""What replication takes from the broker's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from metadata.effective import TopicConfig
from runtime.config.node import NodeConfig
from storage.config import LogConfig


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """Broker-wide settings, by Kafka's names; topics' settings come from the metadata image."""

    inter_broker_listener_name: str = "PLAINTEXT"
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    log_flush_scheduler_interval_ms: int = 1_000
    log_retention_check_interval_ms: int = 300_000
    producer_id_expiration_ms: int = 86_400_000
    # The node's own server.properties: the layer of topics' defaults under the dynamic ones.
    static: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: NodeConfig) -> ReplicaConfig:
        return cls(
            inter_broker_listener_name=config.inter_broker_listener_name,
            replica_lag_time_max_ms=config.replica_lag_time_max_ms,
            replica_fetch_wait_max_ms=config.replica_fetch_wait_max_ms,
            replica_fetch_min_bytes=config.replica_fetch_min_bytes,
            replica_fetch_max_bytes=config.replica_fetch_max_bytes,
            replica_fetch_response_max_bytes=config.replica_fetch_response_max_bytes,
            replica_fetch_backoff_ms=config.replica_fetch_backoff_ms,
            replica_high_watermark_checkpoint_interval_ms=(
                config.replica_high_watermark_checkpoint_interval_ms
            ),
            log_flush_scheduler_interval_ms=config.log_flush_scheduler_interval_ms,
            log_retention_check_interval_ms=config.log_retention_check_interval_ms,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            static=config.raw,
        )


def log_config(topic: TopicConfig, producer_id_expiration_ms: int) -> LogConfig:
    """What a log takes from its topic's configuration."""
    return LogConfig(
        segment_bytes=topic.segment_bytes,
        segment_ms=topic.segment_ms,
        segment_jitter_ms=topic.segment_jitter_ms,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        flush_messages=topic.flush_messages,
        flush_ms=topic.flush_ms,
        log_append_time=topic.message_timestamp_type == "LogAppendTime",
        delete_old="delete" in topic.cleanup_policy,
        producer_id_expiration_ms=producer_id_expiration_ms,
    )
