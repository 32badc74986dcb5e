"""Which resources can have a configuration, by type."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.service.context import BrokerContext
from metadata.configs import ConfigResource
from metadata.image import MetadataImage
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.metadata_pb2 import ConfigResourceType
from storage.turns import in_slices

BROKER_LOGGER: Final = 8
"""The resource type of a broker's loggers (KIP-412)."""

_TYPES: Final = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)

_WITH_CONFIGS: Final = (ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP)
"""A resource of these types exists as long as it has a configuration."""


async def list_resources(
    context: BrokerContext, caller: Caller, types: Collection[int]
) -> list[ConfigResource]:
    """All topics and brokers, the subscriptions to clients' metrics, and the groups that have a
    configuration of their own, of the types asked for (none: of all types), by type and name.

    Raises ApiError CLUSTER_AUTHORIZATION_FAILED, and UNSUPPORTED_VERSION for an unknown type.
    """
    why = refusal(context.authorizer, caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
    if why is not None:
        raise why
    asked = set(types) or set(_TYPES)
    if unknown := asked.difference(_TYPES):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, f"resources of type {min(unknown)} are not known"
        )
    image = context.image()
    found: list[ConfigResource] = []
    if ConfigResourceType.TOPIC in asked:
        found += await in_slices(
            lambda topic: ConfigResource.topic(topic.name), image.sorted_topics()
        )
    for kind in (ConfigResourceType.BROKER, BROKER_LOGGER):
        if kind in asked:
            brokers = image.sorted_brokers()
            found += [ConfigResource(kind, str(each.broker_id)) for each in brokers]
    of_configs = asked.intersection(_WITH_CONFIGS)
    if of_configs:
        found += await _configured(image, of_configs)
    return found


async def _configured(image: MetadataImage, types: Collection[int]) -> list[ConfigResource]:
    found = await in_slices(lambda each: each if each.type in types else None, image.configs)
    return sorted(each for each in found if each is not None)
