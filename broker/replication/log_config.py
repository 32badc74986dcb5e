"""A log's part of its topic's configuration."""

from __future__ import annotations

from metadata.topic_config import TopicConfig
from runtime.config.node import NodeConfig
from storage.config import LogConfig


def log_config(topic: TopicConfig, node: NodeConfig) -> LogConfig:
    """What a topic does not configure is the node's."""
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
        compact="compact" in topic.cleanup_policy,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        delete_retention_ms=topic.delete_retention_ms,
        producer_id_expiration_ms=node.producer_id_expiration_ms,
        producer_ids_max=node.producer_ids_max,
    )
