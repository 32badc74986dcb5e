"""What a configuration comes to: static default → cluster default → broker → topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

from metadata.config_keys import NODE_KEYS, TOPIC_KEYS, ConfigKey, Value
from metadata.configs import CLUSTER, ConfigResource
from metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's effective configuration, without the keys that change nothing (``is_inert``).

    Field names are the keys' names with underscores for dots.
    """

    cleanup_policy: tuple[str, ...]
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool


class Sourced(NamedTuple):
    """A value as text, and where it comes from, in the words of Kafka's DescribeConfigs."""

    value: str
    source: str


DEFAULT = "DEFAULT"
STATIC_BROKER = "STATIC_BROKER"
DYNAMIC_DEFAULT_BROKER = "DYNAMIC_DEFAULT_BROKER"
DYNAMIC_BROKER = "DYNAMIC_BROKER"
DYNAMIC_TOPIC = "DYNAMIC_TOPIC"


_EFFECTIVE = tuple(key for key in TOPIC_KEYS.values() if not key.is_inert)


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
    values: dict[str, Value] = {}
    for key in _EFFECTIVE:
        text = sourced(image, key, static=static, topic=topic, broker_id=broker_id).value
        values[key.name.replace(".", "_")] = key.parse(text)
    return TopicConfig(**values)  # type: ignore[arg-type]


def sourced(
    image: MetadataImage,
    key: ConfigKey,
    *,
    static: Mapping[str, str],
    topic: str | None = None,
    broker_id: int | None = None,
) -> Sourced:
    """The value of a topic key or of a node key, and its source."""
    first = next(_layers(image, key, static, topic, broker_id))
    return Sourced(first.value, first.source)


class Layer(NamedTuple):
    """One place that says what a key is: under which name, the value, and the source."""

    name: str
    value: str
    source: str


def layers(
    image: MetadataImage,
    key: ConfigKey,
    *,
    static: Mapping[str, str],
    topic: str | None = None,
    broker_id: int | None = None,
) -> list[Layer]:
    """Everything that is set for a key, the value in force first, its default last: what Kafka's
    DescribeConfigs calls synonyms. Arguments as for ``sourced``."""
    return list(_layers(image, key, static, topic, broker_id))


def _layers(
    image: MetadataImage,
    key: ConfigKey,
    static: Mapping[str, str],
    topic: str | None,
    broker_id: int | None,
) -> Iterator[Layer]:
    if topic is not None:
        text = image.config(ConfigResource.topic(topic)).get(key.name)
        if text is not None:
            yield Layer(key.name, text, DYNAMIC_TOPIC)
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
    key = TOPIC_KEYS["min.insync.replicas"]
    return cast(int, key.parse(sourced(image, key, static={}, topic=topic).value))


def cluster_int(image: MetadataImage, name: str, static: Mapping[str, str]) -> int:
    """A whole number that is one for the cluster, such as num.partitions."""
    key = NODE_KEYS[name]
    return cast(int, key.parse(sourced(image, key, static=static).value))


def throttled_rate(
    image: MetadataImage, role: str, static: Mapping[str, str], broker_id: int
) -> int:
    """Bytes/s that a broker sends (``role`` leader) or fetches (follower) of throttled replicas."""
    key = NODE_KEYS[f"{role}.replication.throttled.rate"]
    return cast(int, key.parse(sourced(image, key, static=static, broker_id=broker_id).value))


def unclean_election_enabled(image: MetadataImage, topic: str, static: Mapping[str, str]) -> bool:
    """Whether a topic may be led by a replica that may lack committed records."""
    key = TOPIC_KEYS["unclean.leader.election.enable"]
    return cast(bool, key.parse(sourced(image, key, static=static, topic=topic).value))
