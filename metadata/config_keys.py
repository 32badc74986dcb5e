"""Every configuration key, declared once: here, in ``metadata.node_settings``, in
``metadata.topic_config``, in ``metadata.group_config`` or in ``metadata.client_metrics``.

Names and defaults are Apache Kafka's wherever Kafka has the key; where ours differ, the line of
documentation says so. A topic key is declared under its topic name; the key that gives its
default in ``server.properties`` and for the whole cluster is derived from it (``retention.ms`` →
``log.retention.ms``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, cast

from metadata.client_metrics import CLIENT_METRICS, subscription_of
from metadata.config_key import INT_MAX, LONG_MAX, ConfigKey, Scope, Type, Value
from metadata.connection_settings import (
    CONNECTION_KEYS,
    OVERRIDES,
    listener_limit,
    read_overrides,
)
from metadata.group_config import GROUP
from metadata.node_settings import SETTINGS
from metadata.security_settings import NODE_SECURITY_KEYS, STORE_KEYS, store_key
from metadata.topic_config import TOPIC, TopicConfig
from stele.errors import ApiError, ErrorCode

__all__ = [
    "CLIENT_METRICS_KEYS",
    "GROUP_KEYS",
    "INT_MAX",
    "LONG_MAX",
    "NODE_KEYS",
    "TOPIC_KEYS",
    "ConfigKey",
    "Scope",
    "Type",
    "Value",
    "is_kept_on_cluster",
    "nearest",
    "unknown",
    "validate_broker_config",
    "validate_client_metrics",
    "validate_group_config",
    "validate_together",
    "validate_topic_config",
]

# Keys that the controller reads as well as the leader: they must agree, so one broker alone
# cannot have its own.
_AGREED = (
    TopicConfig.min_insync_replicas.key.name,
    TopicConfig.unclean_leader_election_enable.key.name,
)


# ---------------------------------------------------------------------------------- nodes

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

NUM_PARTITIONS: Final = ConfigKey(
    "num.partitions", Type.INT, "1",
    "How many partitions a new topic has by default.", minimum=1,
    scope=Scope.CLUSTER_ONLY,
)  # fmt: skip
DEFAULT_REPLICATION_FACTOR: Final = ConfigKey(
    "default.replication.factor", Type.INT, "1",
    "How many replicas the partitions of a new topic have by default.", minimum=1,
    maximum=32767, scope=Scope.CLUSTER_ONLY,
)  # fmt: skip
LEADER_THROTTLED_RATE: Final = ConfigKey(
    "leader.replication.throttled.rate", Type.LONG, str(LONG_MAX),
    "The most bytes per second that a broker sends from the replicas in a topic's "
    "leader.replication.throttled.replicas. Followers that are in sync are not held back.",
    minimum=0, scope=Scope.CLUSTER,
)  # fmt: skip
FOLLOWER_THROTTLED_RATE: Final = ConfigKey(
    "follower.replication.throttled.rate", Type.LONG, str(LONG_MAX),
    "The most bytes per second that a broker fetches for the replicas in a topic's "
    "follower.replication.throttled.replicas. Replicas that are in sync are not held back.",
    minimum=0, scope=Scope.CLUSTER,
)  # fmt: skip
MOVES_RATE: Final = ConfigKey(
    "replica.alter.log.dirs.io.max.bytes.per.second", Type.LONG, str(LONG_MAX),
    "The most bytes per second that a broker copies to move replicas between its log directories.",
    minimum=1, scope=Scope.CLUSTER,
)  # fmt: skip

_NODE = (
    *(setting.key for setting in SETTINGS.values()),
    # Who this node is.
    ConfigKey(
        "process.roles", Type.LIST, "broker,controller",
        "What this node is: broker, controller or both.", allowed=("broker", "controller"),
    ),
    ConfigKey(
        "broker.rack", Type.STRING, "",
        "The location of the broker (a rack, a zone, a host). Replicas are spread over the racks.",
    ),
    ConfigKey(
        "log.dirs", Type.LIST, "/tmp/stele-logs",
        "The directories of the partitions.",
    ),
    ConfigKey(
        "metadata.log.dir", Type.STRING, "",
        "The directory of the metadata log. If empty, the first of log.dirs.",
    ),
    # How it is reached.
    ConfigKey(
        "listeners", Type.LIST, "PLAINTEXT://127.0.0.1:9092",
        "The addresses at which a broker serves the Kafka protocol: NAME://host:port. An empty "
        "host is 127.0.0.1 (Kafka: all interfaces). Port 0 is any free port.",
    ),
    ConfigKey(
        "advertised.listeners", Type.LIST, "",
        "The addresses that clients get, by listener name. If empty, those of listeners.",
    ),
    ConfigKey(
        "grpc.listeners", Type.LIST, "PLAINTEXT://127.0.0.1:9192",
        "The addresses at which a broker serves gRPC, under the same names as listeners.",
    ),
    ConfigKey(
        "grpc.advertised.listeners", Type.LIST, "",
        "The gRPC addresses for clients of the Kafka listener with the same name. If empty, those "
        "of grpc.listeners.",
    ),
    ConfigKey(
        "inter.broker.listener.name", Type.STRING, "",
        "The listener that brokers and controllers use to reach brokers. If empty, the first one.",
    ),
    ConfigKey(
        "listener.security.protocol.map", Type.LIST,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener: NAME:PROTOCOL. A name that is not mapped is "
        "PLAINTEXT (Kafka: must be mapped), but a node does not start if it has SSL, TLS or SASL "
        "in it.",
    ),
    ConfigKey(
        "controller.listener", Type.LIST, "127.0.0.1:9093",
        "The host:port at which a controller serves gRPC. If controller.listener.names has "
        "several names: NAME://host:port of each.",
    ),
    ConfigKey(
        "controller.advertised.listener", Type.LIST, "",
        "The host:port at which the other nodes reach this controller, or NAME://host:port of each "
        "of several listeners. If empty, its entry in controller.quorum.voters (of several "
        "listeners only the host of it), or else controller.listener.",
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers", Type.LIST, "",
        "Controllers to ask for the quorum's leader: the host:port of some of the current voters.",
    ),
    ConfigKey(
        "controller.quorum.voters", Type.LIST, "",
        "The first voters of a new quorum: id@host:port, the same on every node. Once they have "
        "changed, the metadata log decides. If empty, an option of stele format sets the first "
        "voters.",
    ),
    ConfigKey(
        "metrics.listener", Type.STRING, "127.0.0.1:9404",
        "The host:port at which /metrics is served. If empty, it is not served.",
    ),
    ConfigKey(
        "telemetry.otlp.endpoint", Type.STRING, "",
        "The host:port of a collector of OpenTelemetry, to which a broker passes on by gRPC what "
        "clients push. If empty, it does not.",
    ),
    # Who may do what.
    ConfigKey(
        "authorizer.class.name", Type.STRING, "",
        "The authorizer: Kafka's name of its own, or stele for short. It decides over ACLs in the "
        "metadata log. If empty, every caller may do everything.",
        allowed=(STANDARD_AUTHORIZER, "stele"),
    ),
    ConfigKey(
        "super.users", Type.STRING, "",
        "The principals that may do everything, separated by semicolons: User:admin;User:CN=node. "
        "The nodes of the cluster must be among them.",
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found", Type.BOOLEAN, "false",
        "Whether every caller may use a resource that no ACL is about.",
    ),
    *CONNECTION_KEYS,
    *NODE_SECURITY_KEYS,
    # Topics.
    NUM_PARTITIONS,
    DEFAULT_REPLICATION_FACTOR,
    # Replication.
    LEADER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_RATE,
    MOVES_RATE,
)  # fmt: skip


def _synonym(key: ConfigKey) -> ConfigKey:
    """The key that gives a topic key its default for the node and for the cluster."""
    scope = Scope.CLUSTER_ONLY if key.name in _AGREED else Scope.CLUSTER
    doc = f"{key.name} of topics that do not set it. {key.doc}"
    if key.synonym == key.name:
        doc = key.doc
    return replace(key, name=key.synonym or "", doc=doc, scope=scope, synonym=None, coarser=())


def _coarser_synonyms(key: ConfigKey) -> Iterable[ConfigKey]:
    for name, factor in key.coarser:
        unit = name.rpartition(".")[2]
        yield ConfigKey(
            name, Type.INT, "", f"{key.synonym} in {unit}. A key with a finer unit has precedence.",
            minimum=None if key.minimum is None else min(key.minimum, 1),
            maximum=LONG_MAX // factor if LONG_MAX // factor < INT_MAX else None,
        )  # fmt: skip


def _by_name(keys: Iterable[ConfigKey]) -> Mapping[str, ConfigKey]:
    return MappingProxyType({key.name: key for key in sorted(keys, key=lambda key: key.name)})


TOPIC_KEYS: Mapping[str, ConfigKey] = _by_name(replace(key, scope=Scope.TOPIC) for key in TOPIC)
"""The keys that can be set on a topic."""

GROUP_KEYS: Mapping[str, ConfigKey] = _by_name(GROUP)
"""The keys that can be set on a consumer group."""

CLIENT_METRICS_KEYS: Mapping[str, ConfigKey] = _by_name(CLIENT_METRICS)
"""The keys that can be set on a subscription to clients' metrics."""

NODE_KEYS: Mapping[str, ConfigKey] = _by_name(
    (
        *_NODE,
        *(_synonym(key) for key in TOPIC if key.synonym is not None),
        *(coarse for key in TOPIC for coarse in _coarser_synonyms(key)),
    )
)
"""The keys of server.properties; those not of scope STATIC can also be set dynamically."""


# ---------------------------------------------------------------------------------- validation


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    found = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.6)
    return found[0] if found else None


def unknown(name: str, names: Iterable[str], what: str) -> str:
    """A message for a key that does not exist, with the nearest one that does."""
    near = nearest(name, names)
    return f"there is no {what} {name}" + (f"; did you mean {near}?" if near else "")


VALUE_BYTES_MAX: Final = 32_767
"""The longest value that can be set dynamically. Kafka allows as many characters, but a string of
its answers cannot be longer than so many bytes."""


def _parse(key: ConfigKey, value: str) -> None:
    size = len(value.encode())
    if size > VALUE_BYTES_MAX:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"the value of {key.name} has {size} bytes: {VALUE_BYTES_MAX} are the most",
        )
    key.parse(value)


def validate_topic_config(name: str, value: str) -> None:
    """Check one setting of a topic. Raises ApiError INVALID_CONFIG."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        message = unknown(name, TOPIC_KEYS, "topic configuration")
        for topic_key in TOPIC_KEYS.values():
            if name == topic_key.synonym or name in dict(topic_key.coarser):
                message = f"{name} is a config of brokers; that of topics is {topic_key.name}"
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    _parse(key, value)


def validate_group_config(name: str, value: str) -> None:
    """Check one setting of a consumer group by itself. Raises ApiError INVALID_CONFIG."""
    key = GROUP_KEYS.get(name)
    if key is None:
        message = unknown(name, GROUP_KEYS, "group configuration")
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    _parse(key, value)


def validate_client_metrics(configs: Mapping[str, str]) -> None:
    """Check all settings of a subscription to clients' metrics. Raises ApiError, for an unknown key
    INVALID_REQUEST as Kafka does."""
    for name in sorted(configs):
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            message = unknown(name, CLIENT_METRICS_KEYS, "configuration of client metrics")
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        _parse(key, configs[name])
    subscription_of(configs)


def validate_together(configs: Mapping[str, str]) -> None:
    """Check what the settings of one topic, each valid by itself, say together. What is not set has
    its default. Raises ApiError INVALID_CONFIG."""
    least, most = TopicConfig.min_compaction_lag_ms.key, TopicConfig.max_compaction_lag_ms.key
    lags = [int(configs.get(key.name) or key.default or 0) for key in (least, most)]
    if lags[0] > lags[1]:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{least.name} {lags[0]} is above {most.name} {lags[1]}",
        )


def is_kept_on_cluster(name: str) -> bool:
    """Whether the cluster always has a value for the key. If all values of the cluster are
    replaced, this one stays unless it gets another one."""
    return name == TopicConfig.min_insync_replicas.key.name


def validate_broker_config(name: str, value: str | None, *, one_broker: bool) -> None:
    """Check one dynamic setting (None: its removal) of the cluster or of one broker.

    Raises ApiError INVALID_CONFIG.
    """
    of_store, limit = store_key(name), listener_limit(name)
    key = NODE_KEYS.get(name)
    if of_store is not None:
        key = of_store.key
    elif limit is not None:
        key = limit.key
    if key is None:
        message = unknown(name, NODE_KEYS, "configuration")
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    if of_store is not None and not one_broker:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is set for one broker, by its number")
    if limit is not None and name != limit.key.name:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"write the listener's name in lower case, as Kafka does: {limit.key.name}",
        )
    if key in STORE_KEYS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{name} can be changed for one listener only: set listener.name.<listener>.{name}",
        )
    if key.scope is Scope.STATIC:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{name} is read at start only: set it in server.properties and restart the node",
        )
    if key.scope is Scope.CLUSTER_ONLY and one_broker:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"{name} must be the same on all brokers: set it for all"
        )
    if value is not None:
        _parse(key, value)
        if key is OVERRIDES:
            read_overrides(cast(tuple[str, ...], key.parse(value)))
    elif is_kept_on_cluster(name):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"the cluster's {name} cannot be removed: set it to another value",
        )
