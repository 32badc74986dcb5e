"""How many connections a broker takes, and how many new ones in a second.

All of them may change while the broker runs. ``listener.name.NAME.max.connections`` and
``listener.name.NAME.max.connection.creation.rate`` are of one listener, whose name stands in lower
case in the key, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final, NamedTuple, cast

from metadata.config_key import INT_MAX, ConfigKey, Scope, Type, Value
from stele.errors import ApiError, ErrorCode

MAX_CONNECTIONS: Final = ConfigKey(
    "max.connections", Type.INT, str(INT_MAX),
    "The most connections of the Kafka protocol. Others are closed at once (Kafka: they wait). "
    "Brokers with their own listener may still connect: a client's connection makes way. "
    "listener.name.NAME.max.connections limits one listener. Its value in server.properties limits "
    "the gRPC port of the listener by itself.",
    minimum=0, scope=Scope.CLUSTER,
)  # fmt: skip
MAX_PER_ADDRESS: Final = ConfigKey(
    "max.connections.per.ip", Type.INT, str(INT_MAX),
    "The most connections of the Kafka protocol from one address.",
    minimum=0, scope=Scope.CLUSTER,
)  # fmt: skip
OVERRIDES: Final = ConfigKey(
    "max.connections.per.ip.overrides", Type.LIST, "",
    "Other limits for some addresses: ADDRESS:COUNT. Host names are not looked up.",
    scope=Scope.CLUSTER,
)  # fmt: skip
CREATION_RATE: Final = ConfigKey(
    "max.connection.creation.rate", Type.INT, str(INT_MAX),
    "The most new connections of the Kafka protocol in a second, but for those of brokers with "
    "their own listener. A connection above it is taken and not read until its turn comes. "
    "listener.name.NAME.max.connection.creation.rate is the rate of one listener.",
    minimum=1, scope=Scope.CLUSTER,
)  # fmt: skip

CONNECTION_KEYS: Final = (MAX_CONNECTIONS, MAX_PER_ADDRESS, OVERRIDES, CREATION_RATE)

_LISTENER_PREFIX: Final = "listener.name."
_OF_LISTENERS: Final = (MAX_CONNECTIONS, CREATION_RATE)


class ListenerLimit(NamedTuple):
    """A limit of one listener."""

    listener: str  # in lower case
    base: ConfigKey  # the broker's key
    key: ConfigKey  # with the full name, and the listener's in lower case


def listener_limit(name: str) -> ListenerLimit | None:
    """The parts of ``listener.name.external.max.connections``; None for any other key."""
    for base in _OF_LISTENERS:
        listener = name.removeprefix(_LISTENER_PREFIX).removesuffix(f".{base.name}")
        if listener and name == f"{_LISTENER_PREFIX}{listener}.{base.name}":
            listener = listener.lower()
            full = f"{_LISTENER_PREFIX}{listener}.{base.name}"
            return ListenerLimit(listener, base, replace(base, name=full))
    return None


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The limits in force. A rate is in connections per second; INT_MAX: there is no limit."""

    max_connections: int
    max_per_address: int
    address_overrides: Mapping[str, int]  # by address
    creation_rate: int
    listener_max: Mapping[str, int]  # by listener, if it has a limit of its own
    listener_rates: Mapping[str, int]  # likewise


def read_connection_settings(
    value_of: Callable[[ConfigKey], Value],
    listener_limits: Iterable[tuple[ListenerLimit, str]],
    listeners: Iterable[str],
) -> ConnectionSettings:
    """``listener_limits``: with their texts. Limits of a listener that is not in ``listeners`` are
    left out. Raises ApiError INVALID_CONFIG."""
    names = {name.lower(): name for name in listeners}
    found: dict[str, dict[str, int]] = {base.name: {} for base in _OF_LISTENERS}
    for limit, text in listener_limits:
        if limit.listener in names:
            found[limit.base.name][names[limit.listener]] = cast(int, limit.key.parse(text))
    return ConnectionSettings(
        max_connections=cast(int, value_of(MAX_CONNECTIONS)),
        max_per_address=cast(int, value_of(MAX_PER_ADDRESS)),
        address_overrides=read_overrides(cast(tuple[str, ...], value_of(OVERRIDES))),
        creation_rate=cast(int, value_of(CREATION_RATE)),
        listener_max=found[MAX_CONNECTIONS.name],
        listener_rates=found[CREATION_RATE.name],
    )


def read_overrides(items: Iterable[str]) -> dict[str, int]:
    """The limits of ``max.connections.per.ip.overrides`` by address. Raises ApiError
    INVALID_CONFIG."""
    overrides = {}
    for item in items:
        host, _, count = item.rpartition(":")
        try:
            parsed = ip_address(host.strip("[]"))
            address = str(getattr(parsed, "ipv4_mapped", None) or parsed)
        except ValueError:
            address = ""
        if not address or not (count.isascii() and count.isdecimal()):
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{OVERRIDES.name}: {item!r} is not of the form ADDRESS:COUNT",
            )
        overrides[address] = int(count)
    return overrides
