"""The configuration keys of nodes that concern share groups (KIP-932), by Kafka's names."""

from __future__ import annotations

from metadata.setting import Setting, boolean, integer, string


def _least(default: int, key: str, least: int = 1) -> Setting[int]:
    return integer(default, f"The lowest {key} of a group.", minimum=least)


def _most(default: int, key: str, least: int = 1, most: int = 2147483647) -> Setting[int]:
    return integer(default, f"The highest {key} of a group.", minimum=least, maximum=most)


class ShareSettings:
    """A part of ``metadata.node_settings.NodeSettings``."""

    group_share_max_size = integer(
        200,
        "The most members of a share group.",
        minimum=1,
        maximum=1000,
    )
    group_share_max_share_sessions = integer(
        2000,
        "The most sessions in which members of share groups may read from this broker.",
        minimum=1,
    )
    group_share_session_timeout_ms = integer(
        45000,
        "How long a member of a share group may be silent before it is removed.",
        minimum=1,
    )
    group_share_min_session_timeout_ms = _least(45000, "share.session.timeout.ms")
    group_share_max_session_timeout_ms = _most(60000, "share.session.timeout.ms")
    group_share_heartbeat_interval_ms = integer(
        5000,
        "The heartbeat interval that members of share groups get.",
        minimum=1,
    )
    group_share_min_heartbeat_interval_ms = _least(5000, "share.heartbeat.interval.ms")
    group_share_max_heartbeat_interval_ms = _most(15000, "share.heartbeat.interval.ms")
    group_share_assignment_interval_ms = integer(
        1000,
        "How long after a target assignment of a share group the next one is made, at the "
        "earliest.",
        minimum=0,
    )
    group_share_min_assignment_interval_ms = _least(0, "share.assignment.interval.ms", 0)
    group_share_max_assignment_interval_ms = _most(15000, "share.assignment.interval.ms", 0)
    group_share_record_lock_duration_ms = integer(
        30000,
        "How long a member of a share group has a record that it does not acknowledge.",
        minimum=1000,
        maximum=3600000,
    )
    group_share_min_record_lock_duration_ms = integer(
        15000,
        "The lowest share.record.lock.duration.ms of a group.",
        minimum=1000,
        maximum=30000,
    )
    group_share_max_record_lock_duration_ms = _most(
        60000, "share.record.lock.duration.ms", 30000, 3600000
    )
    group_share_delivery_count_limit = integer(
        5,
        "How often a record is delivered to members of a share group before it is given up.",
        minimum=2,
        maximum=25,
    )
    group_share_min_delivery_count_limit = integer(
        2,
        "The lowest share.delivery.count.limit of a group.",
        minimum=2,
        maximum=5,
    )
    group_share_max_delivery_count_limit = _most(10, "share.delivery.count.limit", 5, 25)
    group_share_partition_max_record_locks = integer(
        2000,
        "The most records of a partition that a share group has in flight: from the first that is "
        "not done to the last that was delivered.",
        minimum=100,
        maximum=10000,
    )
    group_share_min_partition_max_record_locks = integer(
        100,
        "The lowest share.partition.max.record.locks of a group.",
        minimum=100,
        maximum=2000,
    )
    group_share_max_partition_max_record_locks = _most(
        4000, "share.partition.max.record.locks", 2000, 10000
    )

    errors_deadletterqueue_topic_name_prefix = string(
        "dlq.",
        "What the names of dead letter topics of share groups begin with. Empty: any name may be "
        "one.",
    )
    errors_deadletterqueue_auto_create_topics_enable = boolean(
        False,
        "Whether the first dead letter of a group makes the group's topic of dead letters if there "
        "is none. It gets num.partitions and default.replication.factor.",
    )

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
