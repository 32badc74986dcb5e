"""A consumer group's configuration: every key that a group can have, by Kafka 4.1's names.

Each is declared here and nowhere else: the attribute is the key, dots as underscores, and of an
instance the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast

from metadata.config_key import ConfigKey, Scope, Value
from metadata.node_settings import NodeSettings
from metadata.setting import Setting, integer
from stele.errors import ApiError, ErrorCode


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
    session = GroupConfig.consumer_session_timeout_ms.key.name
    interval = GroupConfig.consumer_heartbeat_interval_ms.key.name
    if values[session] <= values[interval]:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{session} {values[session]} must be larger than {interval} {values[interval]}",
        )


def _value(key: ConfigKey, configs: Mapping[str, str], static: Mapping[str, str]) -> int:
    text = configs.get(key.name) or static.get(key.synonym or "") or key.default or ""
    return cast(int, key.parse(text))
