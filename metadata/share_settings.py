"""The configuration keys of nodes that concern share groups (KIP-932), by Kafka's names."""

from __future__ import annotations

from metadata.setting import integer


class ShareSettings:
    """A part of ``metadata.node_settings.NodeSettings``."""

    share_coordinator_state_topic_num_partitions = integer(
        50,
        "The number of partitions of __share_group_state, for its creation.",
        minimum=1,
    )
    share_coordinator_state_topic_replication_factor = integer(
        3,
        "The replication factor of __share_group_state, for its creation. Where it is not set, it "
        "is at most the number of registered brokers. Where it is set and fewer brokers are "
        "registered, the topic is not created, and share groups deliver nothing.",
        minimum=1,
        maximum=32767,
    )
    share_coordinator_state_topic_min_isr = integer(
        2,
        "The min.insync.replicas of __share_group_state, for its creation. A value above the "
        "number of replicas asks for all replicas.",
        minimum=1,
    )
    share_coordinator_state_topic_segment_bytes = integer(
        104857600,
        "The segment size of __share_group_state, for its creation.",
        minimum=1,
    )
    share_coordinator_write_timeout_ms = integer(
        5000,
        "How long a change of the state of a share partition waits for the in-sync replicas of "
        "__share_group_state.",
        minimum=1,
    )
    share_coordinator_snapshot_update_records_per_snapshot = integer(
        500,
        "After so many updates of the state of a share partition a snapshot follows.",
        minimum=0,
        maximum=500,
    )
