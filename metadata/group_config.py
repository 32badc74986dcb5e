"""A group's configuration: every key that a group can have, by Kafka 4.4's names.

Each is declared here and nowhere else: the attribute is the key, dots as underscores, and of an
instance the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast

from metadata.config_key import ConfigKey, Scope, Value
from metadata.node_settings import NodeSettings
from metadata.setting import Setting, boolean, integer, string
from stele.errors import ApiError, ErrorCode

_NUMBER: Final = r"\d{1,9}"
RESET_PATTERN: Final = (
    r"latest|earliest|by_duration:P(?=[\dT])"
    rf"(?:({_NUMBER})D)?(?:T(?=\d)(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER}(?:\.\d{{1,9}})?)S)?)?"
)
"""Its groups are days, hours, minutes and seconds, in the text of Java's Duration."""


TOPIC_PATTERN: Final = r"|(?!__)[a-zA-Z0-9._-]{1,249}"


class GroupConfig:
    """The effective configuration of a group."""

    def __init__(self, read: Callable[[ConfigKey], Value]) -> None:
        """``read`` gives the value of a key."""
        for name, setting in _SETTINGS.items():
            self.__dict__[name] = read(setting.key)

    consumer_session_timeout_ms = integer(
        45000,
        "How long a member of the consumer protocol may be silent before it is removed.",
        minimum=1,
        synonym="group.consumer.session.timeout.ms",
    )
    consumer_heartbeat_interval_ms = integer(
        5000,
        "The heartbeat interval that members of the consumer protocol get.",
        minimum=1,
        synonym="group.consumer.heartbeat.interval.ms",
    )
    consumer_assignment_interval_ms = integer(
        1000,
        "How long after a target assignment the next one is made, at the earliest. Members that "
        "join or leave meanwhile share it (KIP-1263). 0: each change is followed by an assignment.",
        minimum=0,
        synonym="group.consumer.assignment.interval.ms",
    )
    # Share groups (KIP-932).
    share_session_timeout_ms = integer(
        45000,
        "How long a member of a share group may be silent before it is removed.",
        minimum=1,
        synonym="group.share.session.timeout.ms",
    )
    share_heartbeat_interval_ms = integer(
        5000,
        "The heartbeat interval that members of a share group get.",
        minimum=1,
        synonym="group.share.heartbeat.interval.ms",
    )
    share_assignment_interval_ms = integer(
        1000,
        "How long after a target assignment of a share group the next one is made, at the "
        "earliest. 0: each change is followed by an assignment.",
        minimum=0,
        synonym="group.share.assignment.interval.ms",
    )
    share_record_lock_duration_ms = integer(
        30000,
        "How long a member of a share group has a record that it does not acknowledge. Then the "
        "record is delivered again.",
        minimum=1,
        synonym="group.share.record.lock.duration.ms",
    )
    share_delivery_count_limit = integer(
        5,
        "How often a record is delivered before it is given up. A lower limit counts from the next "
        "delivery on.",
        minimum=1,
        synonym="group.share.delivery.count.limit",
    )
    share_partition_max_record_locks = integer(
        2000,
        "The most records of a partition that a share group has in flight: from the first that is "
        "not done to the last that was delivered.",
        minimum=1,
        synonym="group.share.partition.max.record.locks",
    )
    share_renew_acknowledge_enable = boolean(
        True,
        "Whether members may renew the locks of their records (KIP-1222).",
    )
    share_redelivery_backoff_ms = integer(
        0,
        "How long a record of a share group rests after its first delivery in vain (it was "
        "released, or its lock ended) before it is delivered again. After each further one it "
        "rests twice as long. Kafka has no such configuration. 0: it is delivered again at once.",
        minimum=0,
        maximum=3_600_000,
    )
    share_redelivery_backoff_max_ms = integer(
        60000,
        "How long a record of a share group rests at most before it is delivered again. It holds "
        "its partition's window meanwhile. Kafka has no such configuration.",
        minimum=0,
        maximum=3_600_000,
    )
    # Dead letters (KIP-1191).
    errors_deadletterqueue_topic_name = string(
        "",
        "The topic that gets a dead letter for each record that the share group gives up. Its "
        "errors.deadletterqueue.group.enable must be true. Empty: there are no dead letters.",
        pattern=(TOPIC_PATTERN, "the name of a topic that is not internal, or empty"),
    )
    errors_deadletterqueue_copy_record_enable = boolean(
        True,
        "Whether a dead letter has the key, the value and the headers of its record. Otherwise it "
        "only names the record. Kafka's default is false.",
    )
    share_auto_offset_reset = string(
        "latest",
        "Where a share group begins in a partition that it reads for the first time: latest, "
        "earliest, or by_duration: and an ISO 8601 duration such as PT1H, for the first record of "
        "that time.",
        pattern=(RESET_PATTERN, "latest, earliest or by_duration:PnDTnHnMn.nS"),
    )
    share_isolation_level = string(
        "read_uncommitted",
        "Whether a share group gets the records of open and of aborted transactions "
        "(read_uncommitted), or not (read_committed).",
        allowed=("read_uncommitted", "read_committed"),
    )


_SETTINGS: Final = {
    name: value for name, value in vars(GroupConfig).items() if isinstance(value, Setting)
}
GROUP: Final = tuple(
    replace(setting.key, scope=Scope.GROUP) for _, setting in sorted(_SETTINGS.items())
)
"""Every key."""

_Bounds = tuple[Setting[int], Setting[int], Setting[int]]
BOUNDED: Final[tuple[_Bounds, ...]] = (
    (
        GroupConfig.consumer_session_timeout_ms,
        NodeSettings.group_consumer_min_session_timeout_ms,
        NodeSettings.group_consumer_max_session_timeout_ms,
    ),
    (
        GroupConfig.consumer_heartbeat_interval_ms,
        NodeSettings.group_consumer_min_heartbeat_interval_ms,
        NodeSettings.group_consumer_max_heartbeat_interval_ms,
    ),
    (
        GroupConfig.consumer_assignment_interval_ms,
        NodeSettings.group_consumer_min_assignment_interval_ms,
        NodeSettings.group_consumer_max_assignment_interval_ms,
    ),
    (
        GroupConfig.share_session_timeout_ms,
        NodeSettings.group_share_min_session_timeout_ms,
        NodeSettings.group_share_max_session_timeout_ms,
    ),
    (
        GroupConfig.share_heartbeat_interval_ms,
        NodeSettings.group_share_min_heartbeat_interval_ms,
        NodeSettings.group_share_max_heartbeat_interval_ms,
    ),
    (
        GroupConfig.share_assignment_interval_ms,
        NodeSettings.group_share_min_assignment_interval_ms,
        NodeSettings.group_share_max_assignment_interval_ms,
    ),
    (
        GroupConfig.share_record_lock_duration_ms,
        NodeSettings.group_share_min_record_lock_duration_ms,
        NodeSettings.group_share_max_record_lock_duration_ms,
    ),
    (
        GroupConfig.share_delivery_count_limit,
        NodeSettings.group_share_min_delivery_count_limit,
        NodeSettings.group_share_max_delivery_count_limit,
    ),
    (
        GroupConfig.share_partition_max_record_locks,
        NodeSettings.group_share_min_partition_max_record_locks,
        NodeSettings.group_share_max_partition_max_record_locks,
    ),
)
"""Keys of groups with the keys of nodes that say how low and how high their values may be."""


def check_group(configs: Mapping[str, str], static: Mapping[str, str]) -> None:
    """Check the configs of one group, each value valid by itself, against the bounds of a node and
    together. A config that is not set has the node's default. Raises ApiError INVALID_CONFIG."""
    values = {}
    for setting, least, most in BOUNDED:
        key, low, high = setting.key, least.read(static), most.read(static)
        value = values[key.name] = _value(key, configs, static)
        if key.name in configs and not low <= value <= high:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{key.name}={value}: it must be from {low} ({least.key.name}) to {high} "
                f"({most.key.name})",
            )
    topic = configs.get(GroupConfig.errors_deadletterqueue_topic_name.key.name, "").strip()
    prefix = NodeSettings.errors_deadletterqueue_topic_name_prefix
    if topic and not topic.startswith(prefix.read(static)):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{GroupConfig.errors_deadletterqueue_topic_name.key.name}={topic}: it must begin with "
            f"{prefix.read(static)!r} ({prefix.key.name})",
        )
    for longer, shorter in (
        (GroupConfig.consumer_session_timeout_ms, GroupConfig.consumer_heartbeat_interval_ms),
        (GroupConfig.share_session_timeout_ms, GroupConfig.share_heartbeat_interval_ms),
    ):
        session, interval = longer.key.name, shorter.key.name
        if values[session] <= values[interval]:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{session} {values[session]} must be larger than {interval} {values[interval]}",
            )
    first = GroupConfig.share_redelivery_backoff_ms.key
    longest = GroupConfig.share_redelivery_backoff_max_ms.key
    first_ms, longest_ms = _value(first, configs, static), _value(longest, configs, static)
    if first_ms > longest_ms:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{first.name} {first_ms} must not be larger than {longest.name} {longest_ms}",
        )


def _value(key: ConfigKey, configs: Mapping[str, str], static: Mapping[str, str]) -> int:
    text = configs.get(key.name) or static.get(key.synonym or "") or key.default or ""
    return cast(int, key.parse(text))
