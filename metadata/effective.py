"""The effective value of a configuration: static default → cluster default → broker → topic or
group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, cast

from metadata.config_keys import NODE_KEYS, ConfigKey, Value
from metadata.configs import CLUSTER, ConfigResource
from metadata.connection_settings import (
    ConnectionSettings,
    listener_limit,
    read_connection_settings,
)
from metadata.group_config import GroupConfig
from metadata.image import MetadataImage
from metadata.topic_config import TopicConfig


class Sourced(NamedTuple):
    """A value as text, and where it comes from, in the words of Kafka's DescribeConfigs."""

    value: str
    source: str


DEFAULT = "DEFAULT"
STATIC_BROKER = "STATIC_BROKER"
DYNAMIC_DEFAULT_BROKER = "DYNAMIC_DEFAULT_BROKER"
DYNAMIC_BROKER = "DYNAMIC_BROKER"
DYNAMIC_TOPIC = "DYNAMIC_TOPIC"
DYNAMIC_GROUP = "DYNAMIC_GROUP"
CLIENT_METRICS = "CLIENT_METRICS"


def effective_topic_config(
    image: MetadataImage,
    topic: str,
    *,
    static: Mapping[str, str],
    broker_id: int | None = None,
) -> TopicConfig:
    """The configuration that broker ``broker_id`` (None: no broker) uses for a topic.

    ``static`` is the node's own server.properties, overrides applied (``NodeConfig.raw``).
    """

    def read(key: ConfigKey) -> Value:
        found = sourced(image, key, static=static, topic=topic, broker_id=broker_id)
        return key.parse(found.value)

    return TopicConfig(read)


def effective_group_config(
    image: MetadataImage, group: str, *, static: Mapping[str, str]
) -> GroupConfig:
    """The configuration of a consumer group, which need not exist. ``static`` as for topics."""

    def read(key: ConfigKey) -> Value:
        return key.parse(sourced(image, key, static=static, group=group).value)

    return GroupConfig(read)


def sourced(
    image: MetadataImage,
    key: ConfigKey,
    *,
    static: Mapping[str, str],
    topic: str | None = None,
    group: str | None = None,
    broker_id: int | None = None,
) -> Sourced:
    """The value of a key of topics, of groups or of nodes, and its source."""
    first = next(_layers(image, key, static, topic, group, broker_id))
    return Sourced(first.value, first.source)


class Layer(NamedTuple):
    """One place that sets a key: its name there, the value, and the source."""

    name: str
    value: str
    source: str


def layers(
    image: MetadataImage,
    key: ConfigKey,
    *,
    static: Mapping[str, str],
    topic: str | None = None,
    group: str | None = None,
    broker_id: int | None = None,
) -> list[Layer]:
    """Everything that is set for a key, the value in force first, its default last: what Kafka's
    DescribeConfigs calls synonyms. Arguments as for ``sourced``."""
    return list(_layers(image, key, static, topic, group, broker_id))


def _layers(
    image: MetadataImage,
    key: ConfigKey,
    static: Mapping[str, str],
    topic: str | None,
    group: str | None,
    broker_id: int | None,
) -> Iterator[Layer]:
    if topic is not None:
        text = image.config(ConfigResource.topic(topic)).get(key.name)
        if text is not None:
            yield Layer(key.name, text, DYNAMIC_TOPIC)
    if group is not None:
        text = image.config(ConfigResource.group(group)).get(key.name)
        if text is not None:
            yield Layer(key.name, text, DYNAMIC_GROUP)
    name = key.synonym or key.name
    if broker_id is not None:
        text = image.config(ConfigResource.broker(broker_id)).get(name)
        if text is not None:
            yield Layer(name, text, DYNAMIC_BROKER)
    text = image.config(CLUSTER).get(name)
    if text is not None:
        yield Layer(name, text, DYNAMIC_DEFAULT_BROKER)
    text = static_value(key, static)
    if text is not None:
        yield Layer(name, text, STATIC_BROKER)
    yield Layer(name, key.default or "", DEFAULT)


def client_metrics_layers(image: MetadataImage, key: ConfigKey, name: str) -> list[Layer]:
    """As ``layers``, of a subscription to clients' metrics. Brokers give it no defaults."""
    found = [Layer(key.name, key.default or "", DEFAULT)]
    text = image.config(ConfigResource.client_metrics(name)).get(key.name)
    return found if text is None else [Layer(key.name, text, CLIENT_METRICS), *found]


def static_value(key: ConfigKey, static: Mapping[str, str]) -> str | None:
    """What server.properties says, also in a coarser unit; None: nothing."""
    name = key.synonym or key.name
    if name in static:
        return static[name]
    for coarse, factor in key.coarser:
        if coarse in static:
            amount = cast(int, NODE_KEYS[coarse].parse(static[coarse]))
            # -1 is "unlimited" in every unit.
            return str(amount if amount < 0 else amount * factor)
    return None


def min_insync_replicas(image: MetadataImage, topic: str) -> int:
    """A topic's min.insync.replicas.

    Only from the image, where the first controller writes the cluster's: were it read from each
    node's own file, a leader could commit with fewer replicas than the controller counts on when
    it calls a replica eligible (KIP-966).
    """
    key = TopicConfig.min_insync_replicas.key
    return cast(int, key.parse(sourced(image, key, static={}, topic=topic).value))


def cluster_int(image: MetadataImage, key: ConfigKey, static: Mapping[str, str]) -> int:
    """A whole number that is one for the cluster, such as num.partitions."""
    return cast(int, key.parse(sourced(image, key, static=static).value))


def throttled_rate(
    image: MetadataImage, key: ConfigKey, static: Mapping[str, str], broker_id: int
) -> int:
    """Bytes/s that a broker sends or fetches at most of throttled replicas; ``key`` says which."""
    return cast(int, key.parse(sourced(image, key, static=static, broker_id=broker_id).value))


def effective_connection_settings(
    image: MetadataImage,
    *,
    static: Mapping[str, str],
    broker_id: int,
    listeners: Iterable[str],
) -> ConnectionSettings:
    """The limits of connections that a broker goes by. ``listeners``: the names of its own."""

    def value_of(key: ConfigKey) -> Value:
        return key.parse(sourced(image, key, static=static, broker_id=broker_id).value)

    of_listeners = {}
    for layer in (static, image.config(CLUSTER), image.config(ConfigResource.broker(broker_id))):
        for name, text in layer.items():
            limit = listener_limit(name)
            if limit is not None:
                of_listeners[limit.key.name] = limit, text
    return read_connection_settings(value_of, of_listeners.values(), listeners)


def unclean_election_enabled(image: MetadataImage, topic: str, static: Mapping[str, str]) -> bool:
    """Whether a topic may be led by a replica that may lack committed records."""
    key = TopicConfig.unclean_leader_election_enable.key
    return cast(bool, key.parse(sourced(image, key, static=static, topic=topic).value))
