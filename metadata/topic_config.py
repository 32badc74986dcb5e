"""A topic's configuration: every key that a topic can have, by Kafka 4.4's names.

Each is declared here and nowhere else: the attribute is the key, dots as underscores, and of an
instance the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from metadata.config_key import HOUR_MS, LONG_MAX, MINUTE_MS, ConfigKey, Value
from metadata.setting import Setting, boolean, double, integer, long, string, strings

_TIERED = "Accepted, as in Kafka, while remote.storage.enable is false. It has no effect then."
_THROTTLED = (
    r"\*|([0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?",
    "* or a list of partition:broker, such as 0:1,0:2",
)


class TopicConfig:
    """The effective configuration of a topic, without the keys that have no effect (``is_inert``):
    an instance has no value of those."""

    def __init__(self, read: Callable[[ConfigKey], Value]) -> None:
        """``read`` gives the value of a key."""
        for name, setting in _SETTINGS.items():
            if not setting.key.is_inert:
                self.__dict__[name] = read(setting.key)

    cleanup_policy = strings(
        "delete",
        "What happens to old segments. delete: retention deletes them. compact: the last record of "
        "every key is kept, and every record needs a key. Both may be set.",
        allowed=("delete", "compact"),
        synonym="log.cleanup.policy",
    )
    compression_gzip_level = integer(
        -1,
        "The level at which a leader compresses batches anew with compression.type=gzip. -1: that "
        "of zlib.",
        allowed=("-1", *map(str, range(1, 10))),
        synonym="compression.gzip.level",
    )
    compression_lz4_level = integer(
        9,
        "The level at which a leader compresses batches anew with compression.type=lz4.",
        minimum=1,
        maximum=17,
        synonym="compression.lz4.level",
    )
    compression_type = string(
        "producer",
        "The codec of batches on disk. producer: each keeps its producer's. Otherwise the leader "
        "compresses those of another codec anew, in a helper process, before it appends them. "
        "Batches that brokers make themselves (offsets, transactions) are not compressed.",
        allowed=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonym="compression.type",
    )
    compression_zstd_level = integer(
        3,
        "The level at which a leader compresses batches anew with compression.type=zstd.",
        minimum=-131072,
        maximum=22,
        synonym="compression.zstd.level",
    )
    delete_retention_ms = long(
        24 * HOUR_MS,
        "How long a compacted topic keeps a tombstone (a record without a value) after the first "
        "compaction that found it.",
        minimum=0,
        synonym="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms = long(
        60000,
        "How long the files of a deleted segment are kept. Accepted, but they are removed at "
        "once, since no read needs them.",
        minimum=0,
        synonym="log.segment.delete.delay.ms",
        is_inert=True,
    )
    flush_messages = long(
        1,
        "After how many records a log is synced. With 1 a replica acknowledges only records that "
        "are on disk (Kafka's default: never sync). With a larger number records in the page "
        "cache count, too.",
        minimum=1,
        synonym="log.flush.interval.messages",
    )
    flush_ms = long(
        LONG_MAX,
        "How long a record may be only in the page cache if flush.messages is not 1. Checked "
        "every log.flush.scheduler.interval.ms, which is not a default of this key.",
        minimum=0,
        synonym="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas = strings(
        "",
        "The replicas that fetch at most at their broker's follower.replication.throttled.rate "
        "while they are not in sync: partition:broker, or * for all.",
        pattern=_THROTTLED,
    )
    index_interval_bytes = integer(
        4096,
        "How many bytes of the log there are between two entries of the offset index.",
        minimum=0,
        synonym="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas = strings(
        "",
        "The replicas whose brokers, as leaders, send at most at "
        "leader.replication.throttled.rate to followers that are not in sync: partition:broker, "
        "or * for all.",
        pattern=_THROTTLED,
    )
    local_retention_bytes = long(
        -2,
        f"How much of a tiered log stays here. {_TIERED}",
        minimum=-2,
        synonym="log.local.retention.bytes",
        is_inert=True,
    )
    local_retention_ms = long(
        -2,
        f"How long records of a tiered log stay here. {_TIERED}",
        minimum=-2,
        synonym="log.local.retention.ms",
        is_inert=True,
    )
    max_compaction_lag_ms = long(
        LONG_MAX,
        "How long a record may wait before its log is compacted, whatever its dirty ratio. Also "
        "the longest time of a compacted topic's segment, since the active one is not compacted.",
        minimum=1,
        synonym="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes = integer(
        1048588,
        "The largest accepted record batch in bytes, as it is sent and as it is written "
        "(compressed, perhaps anew by compression.type).",
        minimum=0,
        synonym="message.max.bytes",
    )
    errors_deadletterqueue_group_enable = boolean(
        False,
        "Whether share groups may write dead letters to the topic (KIP-1191).",
    )
    message_downconversion_enable = boolean(
        True,
        "Accepted, but as in Kafka since 4.0 nothing is converted to an older format.",
        synonym="log.message.downconversion.enable",
        is_inert=True,
    )
    message_format_version = string(
        "3.0-IV1",
        "Accepted for tools older than Kafka 4.0, which no longer has this key. The format is "
        "always version 2.",
        synonym="log.message.format.version",
        is_inert=True,
    )
    message_timestamp_after_max_ms = long(
        HOUR_MS,
        "How far ahead of the broker's clock a record's CreateTime may be.",
        minimum=0,
        synonym="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms = long(
        LONG_MAX,
        "How far behind the broker's clock a record's CreateTime may be.",
        minimum=0,
        synonym="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type = string(
        "CreateTime",
        "The timestamp of a record: the producer's (CreateTime), or the leader's at the append.",
        allowed=("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio = double(
        0.5,
        "A log is compacted when more than this part of its bytes was written since the last "
        "compaction. The active segment does not count.",
        minimum=0,
        maximum=1,
        synonym="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms = long(
        0,
        "How old the records of a segment must be before it is compacted.",
        minimum=0,
        synonym="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas = integer(
        1,
        "How many replicas must be in sync so that acks=all writes are accepted. The first start "
        "writes it into the cluster's metadata, so that all brokers agree on it.",
        minimum=1,
        synonym="min.insync.replicas",
    )
    preallocate = boolean(
        False,
        "Whether a segment's file gets its full size when it is created. Accepted, but files grow "
        "as they are written.",
        synonym="log.preallocate",
        is_inert=True,
    )
    remote_log_copy_disable = boolean(
        False,
        f"Whether a tiered log stops copying segments. {_TIERED}",
        is_inert=True,
    )
    remote_log_delete_on_disable = boolean(
        False,
        f"Whether the tiered part goes when tiering is turned off. {_TIERED}",
        is_inert=True,
    )
    remote_storage_enable = boolean(
        False,
        "Whether old segments go to tiered storage. Only false: tiered storage is not built.",
        not_built=(("true", "tiered storage is not built; it must be false"),),
        is_inert=True,
    )
    retention_bytes = long(
        -1,
        "How large a partition may grow before its oldest segments are deleted. -1: unlimited.",
        minimum=-1,
        synonym="log.retention.bytes",
    )
    retention_ms = long(
        168 * HOUR_MS,
        "How long records are kept at least. -1: for ever.",
        minimum=-1,
        synonym="log.retention.ms",
        coarser=(("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    )
    segment_bytes = integer(
        1073741824,
        "How large a segment file grows before the next segment begins.",
        minimum=1024,
        synonym="log.segment.bytes",
    )
    segment_index_bytes = integer(
        10485760,
        "How large a segment's index may grow before the next segment begins.",
        minimum=16,
        synonym="log.index.size.max.bytes",
    )
    segment_jitter_ms = long(
        0,
        "How much less than segment.ms the time of a segment may be, so that not all segments end "
        "at once. It is the same on every replica of a partition (Kafka: random on each).",
        minimum=0,
        synonym="log.roll.jitter.ms",
        coarser=(("log.roll.jitter.hours", HOUR_MS),),
    )
    segment_ms = long(
        168 * HOUR_MS,
        "How old a segment's first record may become before the next segment begins.",
        minimum=1,
        synonym="log.roll.ms",
        coarser=(("log.roll.hours", HOUR_MS),),
    )
    unclean_leader_election_enable = boolean(
        False,
        "Whether a replica that may lack committed records may lead if no other replica can.",
        synonym="unclean.leader.election.enable",
    )


_SETTINGS: Final = {
    name: each for name, each in vars(TopicConfig).items() if isinstance(each, Setting)
}
"""By attribute."""

TOPIC: Final = tuple(setting.key for setting in _SETTINGS.values())
