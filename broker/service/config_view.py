"""What the configuration of a topic, a group, a broker or a subscription to clients' metrics comes
to, key by key, with its source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.service.context import BrokerContext
from metadata.config_keys import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    NODE_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    Scope,
    Type,
)
from metadata.configs import CLUSTER, ConfigResource
from metadata.connection_settings import listener_limit
from metadata.effective import DYNAMIC_TOPIC, Layer, client_metrics_layers, layers
from metadata.image import MetadataImage
from metadata.security_settings import store_key
from runtime.authorization.authorizer import Operation, config_resource, refusal, topic_resource
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.metadata_pb2 import ConfigResourceType

RESOURCES_AT_ONCE: Final = 8
"""Resources described in one turn of the event loop: each has dozens of keys."""


@dataclass(frozen=True, slots=True)
class DescribedKey:
    """One key of one resource, with all places that set it: the one in force first."""

    key: ConfigKey
    layers: list[Layer]
    read_only: bool

    @property
    def is_secret(self) -> bool:
        """Whether its values are shown to nobody."""
        return self.key.type is Type.PASSWORD

    @property
    def value(self) -> str | None:
        """The value in force; None of a secret."""
        return None if self.is_secret else self.layers[0].value

    @property
    def source(self) -> str:
        """In the words of ``metadata.effective``."""
        return self.layers[0].source


def describe_resource(
    context: BrokerContext, caller: Caller, resource_type: int, resource_name: str
) -> list[DescribedKey]:
    """Every key of a topic, of a group or a subscription (which need not exist) or of this broker,
    by name; of the cluster's default what is set.

    Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST, TOPIC_AUTHORIZATION_FAILED,
    GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
    """
    resource = config_resource(resource_type, resource_name)
    why = refusal(context.authorizer, caller, Operation.DESCRIBE_CONFIGS, resource)
    if why is not None:
        raise why
    if resource_type == ConfigResourceType.TOPIC:
        return _describe_topic(context, resource_name)
    if resource_type == ConfigResourceType.GROUP:
        return _describe_group(context, resource_name)
    if resource_type == ConfigResourceType.BROKER:
        return _describe_broker(context, resource_name)
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        return _describe_subscription(context, resource_name)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no configuration")


def _describe_topic(context: BrokerContext, topic: str) -> list[DescribedKey]:
    image = context.image()
    if image.topic(topic) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
    static = context.config.raw
    described = []
    for key in _by_name(TOPIC_KEYS):
        found = layers(image, key, static=static, topic=topic, broker_id=context.broker_id)
        described.append(DescribedKey(key, found, read_only=False))
    return described


def _describe_group(context: BrokerContext, group_id: str) -> list[DescribedKey]:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a group's name must not be empty")
    image, static = context.image(), context.config.raw
    return [
        DescribedKey(key, layers(image, key, static=static, group=group_id), read_only=False)
        for key in _by_name(GROUP_KEYS)
    ]


def _describe_subscription(context: BrokerContext, name: str) -> list[DescribedKey]:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a subscription to clients' metrics has a name")
    image = context.image()
    return [
        DescribedKey(key, client_metrics_layers(image, key, name), read_only=False)
        for key in _by_name(CLIENT_METRICS_KEYS)
    ]


def set_on_topic(
    context: BrokerContext, caller: Caller, image: MetadataImage, topic: str
) -> dict[str, str]:
    """The configs of a topic itself, by key; nothing for a caller that may not see them."""
    resource = topic_resource(topic)
    if not context.authorizer.allows(caller, Operation.DESCRIBE_CONFIGS, resource):
        return {}
    return dict(sorted(image.config(ConfigResource.topic(topic)).items()))


class NewTopicConfigs:
    """What the configuration of topics that are being made comes to.

    Not read from an image: this broker's may not have them yet, and with validate_only none will.
    """

    def __init__(self, context: BrokerContext, caller: Caller) -> None:
        self._context, self._caller = context, caller
        image, static = context.image(), context.config.raw
        self._inherited = [
            DescribedKey(
                key,
                layers(image, key, static=static, broker_id=context.broker_id),
                read_only=False,
            )
            for key in _by_name(TOPIC_KEYS)
        ]

    def may_be_told(self, name: str) -> bool:
        """Whether the caller may see the configuration of a topic of this name."""
        return self._context.authorizer.allows(
            self._caller, Operation.DESCRIBE_CONFIGS, topic_resource(name)
        )

    def of(self, configs: Mapping[str, str]) -> list[DescribedKey]:
        """Every key of a topic that is made with ``configs``, by name."""
        return [
            _overridden(each, configs[each.key.name]) if each.key.name in configs else each
            for each in self._inherited
        ]


def _overridden(inherited: DescribedKey, value: str) -> DescribedKey:
    own = Layer(inherited.key.name, value, DYNAMIC_TOPIC)
    return DescribedKey(inherited.key, [own, *inherited.layers], read_only=False)


def _describe_broker(context: BrokerContext, name: str) -> list[DescribedKey]:
    if name == "":
        return _describe_cluster_default(context)
    if name != str(context.broker_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"ask broker {name} itself: this is broker {context.broker_id}",
        )
    described = []
    for key in _by_name(NODE_KEYS):
        found = layers(context.image(), key, static=context.config.raw, broker_id=context.broker_id)
        described.append(DescribedKey(key, found, key.scope is Scope.STATIC))
    image, static = context.image(), context.config.raw
    own, cluster = image.config(ConfigResource.broker(context.broker_id)), image.config(CLUSTER)
    limits = [name for name in {**static, **cluster} if listener_limit(name) is not None]
    for key in _of_listeners({*own, *limits}):
        found = layers(image, key, static=static, broker_id=context.broker_id)
        described.append(DescribedKey(key, found, read_only=False))
    return described


def _of_listeners(names: Iterable[str]) -> list[ConfigKey]:
    """The keys of listeners among these names that may be set while a broker runs."""
    keys = []
    for name in sorted(names):
        of_store, limit = store_key(name), listener_limit(name)
        if of_store is not None:
            keys.append(of_store.key)
        elif limit is not None:
            keys.append(limit.key)
    return keys


def _describe_cluster_default(context: BrokerContext) -> list[DescribedKey]:
    image = context.image()
    present = image.config(CLUSTER)
    keys = [key for key in _by_name(NODE_KEYS) if key.name in present]
    return [
        DescribedKey(key, layers(image, key, static={}), read_only=False)
        for key in [*keys, *_of_listeners(present)]
    ]


def _by_name(keys: Mapping[str, ConfigKey]) -> list[ConfigKey]:
    return [keys[name] for name in sorted(keys)]
