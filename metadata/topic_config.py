"""A topic's configuration: every key that a topic can have, by Kafka 4.1's names.

Each is declared here and nowhere else: the attribute is the key, dots as underscores, and of an
instance the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from metadata.config_key import HOUR_MS, LONG_MAX, MINUTE_MS, ConfigKey, Value
from metadata.setting import Setting, boolean, double, integer, long, string, strings

_COMPACTED = "Accepted for topics that compaction would clean; compaction is not built."
_TIERED = "Accepted as in Kafka while remote.storage.enable is false: it changes nothing then."
_THROTTLED = (
    r"\*|([0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?",
    "* or a list of partition:broker, such as 0:1,0:2",
)


class TopicConfig:
    """What a topic's configuration comes to, without the keys that change nothing (``is_inert``):
    an instance has no value of those."""

    def __init__(self, read: Callable[[ConfigKey], Value]) -> None:
        """``read`` gives the value of a key."""
        for name, setting in _SETTINGS.items():
            if not setting.key.is_inert:
                self.__dict__[name] = read(setting.key)

    cleanup_policy = strings(
        "delete",
        "What happens to old segments. Only deletion is built.",
        allowed=("delete",),
        synonym="log.cleanup.policy",
        not_built=(("compact", "log compaction is not built; it must be delete"),),
    )
    compression_gzip_level = integer(
        -1,
        "The level of compression.type=gzip. Accepted; batches are never compressed anew.",
        allowed=("-1", *map(str, range(1, 10))),
        synonym="compression.gzip.level",
        is_inert=True,
    )
    compression_lz4_level = integer(
        9,
        "The level of compression.type=lz4. Accepted; batches are never compressed anew.",
        minimum=1,
        maximum=17,
        synonym="compression.lz4.level",
        is_inert=True,
    )
    compression_type = string(
        "producer",
        "The codec on disk: what the producer chose. Batches are never compressed anew.",
        allowed=("producer",),
        synonym="compression.type",
        is_inert=True,
        not_built=tuple(
            (codec, "the broker compresses nothing anew; it must be producer")
            for codec in ("uncompressed", "gzip", "snappy", "lz4", "zstd")
        ),
    )
    compression_zstd_level = integer(
        3,
        "The level of compression.type=zstd. Accepted; batches are never compressed anew.",
        minimum=-131072,
        maximum=22,
        synonym="compression.zstd.level",
        is_inert=True,
    )
    delete_retention_ms = long(
        24 * HOUR_MS,
        f"How long a tombstone is kept. {_COMPACTED}",
        minimum=0,
        synonym="log.cleaner.delete.retention.ms",
        is_inert=True,
    )
    file_delete_delay_ms = long(
        60000,
        "How long a segment's files outlive it. Accepted; they go at once, since no read needs "
        "them any more.",
        minimum=0,
        synonym="log.segment.delete.delay.ms",
        is_inert=True,
    )
    flush_messages = long(
        1,
        "A replica acknowledges only what is on disk when this is 1 (Kafka's default: never); a "
        "larger number leaves flushing to the page cache until so many records have come.",
        minimum=1,
        synonym="log.flush.interval.messages",
    )
    flush_ms = long(
        LONG_MAX,
        "How long a record may stay in the page cache alone where flush.messages is not 1. Looked "
        "after every log.flush.scheduler.interval.ms, which is no default of this key.",
        minimum=0,
        synonym="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas = strings(
        "",
        "The replicas that fetch at follower.replication.throttled.rate of their brokers at most "
        "while they are not in sync: partition:broker, or * for all.",
        pattern=_THROTTLED,
    )
    index_interval_bytes = integer(
        4096,
        "How many bytes of log one entry of the offset index stands for.",
        minimum=0,
        synonym="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas = strings(
        "",
        "The replicas whose brokers, as leaders, send at leader.replication.throttled.rate at most "
        "to followers that are not in sync: partition:broker, or * for all.",
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
        f"How long a record may wait to be compacted. {_COMPACTED}",
        minimum=1,
        synonym="log.cleaner.max.compaction.lag.ms",
        is_inert=True,
    )
    max_message_bytes = integer(
        1048588,
        "The largest record batch that is accepted, in bytes as it is written.",
        minimum=0,
        synonym="message.max.bytes",
    )
    message_downconversion_enable = boolean(
        True,
        "Accepted; as in Kafka since 4.0 nothing is converted to an older format.",
        synonym="log.message.downconversion.enable",
        is_inert=True,
    )
    message_format_version = string(
        "3.0-IV1",
        "Accepted from tools older than Kafka 4.0, which has no such key; the format is always "
        "that of version 2.",
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
        "Whose time a record carries: the producer's or the leader's at the append.",
        allowed=("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio = double(
        0.5,
        f"How much of a log must be dirty before it is compacted. {_COMPACTED}",
        minimum=0,
        maximum=1,
        synonym="log.cleaner.min.cleanable.ratio",
        is_inert=True,
    )
    min_compaction_lag_ms = long(
        0,
        f"How long a record is at least not compacted. {_COMPACTED}",
        minimum=0,
        synonym="log.cleaner.min.compaction.lag.ms",
        is_inert=True,
    )
    min_insync_replicas = integer(
        1,
        "How many replicas must be in sync for acks=all to be accepted. In the cluster's state "
        "from the first start, so that all brokers agree on it.",
        minimum=1,
        synonym="min.insync.replicas",
    )
    preallocate = boolean(
        False,
        "Whether a segment's file gets its whole size when it is made. Accepted; files grow as "
        "they are written.",
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
        "How large a partition may grow before its oldest segments are deleted; -1: unlimited.",
        minimum=-1,
        synonym="log.retention.bytes",
    )
    retention_ms = long(
        168 * HOUR_MS,
        "How long records are kept at least; -1: for ever.",
        minimum=-1,
        synonym="log.retention.ms",
        coarser=(("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    )
    segment_bytes = integer(
        1073741824,
        "How large a segment file grows before the next one is begun.",
        minimum=1024,
        synonym="log.segment.bytes",
    )
    segment_index_bytes = integer(
        10485760,
        "How large a segment's index may grow before the next segment is begun.",
        minimum=16,
        synonym="log.index.size.max.bytes",
    )
    segment_jitter_ms = long(
        0,
        "By how much less than segment.ms a segment's time may be, so that not all roll at once. "
        "It is the same on every replica (Kafka: random on each).",
        minimum=0,
        synonym="log.roll.jitter.ms",
        coarser=(("log.roll.jitter.hours", HOUR_MS),),
    )
    segment_ms = long(
        168 * HOUR_MS,
        "How old a segment's first record may become before the next segment is begun.",
        minimum=1,
        synonym="log.roll.ms",
        coarser=(("log.roll.hours", HOUR_MS),),
    )
    unclean_leader_election_enable = boolean(
        False,
        "Whether a replica that may lack committed records may lead when no other can.",
        synonym="unclean.leader.election.enable",
    )


_SETTINGS: Final = {
    name: each for name, each in vars(TopicConfig).items() if isinstance(each, Setting)
}
"""By attribute."""

TOPIC: Final = tuple(setting.key for setting in _SETTINGS.values())
