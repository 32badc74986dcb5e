"""The present values of a node's settings. They may have changed since its start."""

from __future__ import annotations

from dataclasses import replace

from metadata.config_key import Scope
from metadata.configs import CLUSTER, ConfigResource
from metadata.image import MetadataImage
from metadata.node_settings import SETTINGS
from runtime.config.node import NodeConfig

_DYNAMIC = frozenset(
    each.key.name for each in SETTINGS.values() if each.key.scope is not Scope.STATIC
)


def in_force(config: NodeConfig, image: MetadataImage, broker_id: int) -> NodeConfig:
    """The configuration of a node, with the ``NodeSettings`` that the image has for its broker or
    for the cluster. ``config`` is the one that it has started with."""
    values = {
        name: value
        for layer in (CLUSTER, ConfigResource.broker(broker_id))
        for name, value in image.config(layer).items()
        if name in _DYNAMIC
    }
    return replace(config, raw={**config.raw, **values}) if values else config
