"""What group coordinators know of the cluster, by the newest image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.coordinator.group.consumer.types import ConsumerSettings
from broker.coordinator.group.share.types import ShareSettings
from metadata.configs import Configs
from metadata.effective import effective_group_config
from metadata.image import EMPTY, MetadataImage
from metadata.node_settings import NodeSettings
from metadata.topics import Topics

_REMEMBERED_MAX: Final = 10_000


class GroupMetadata:
    """A ``broker.coordinator.group.consumer.types.Metadata``."""

    def __init__(self, static: Mapping[str, str]) -> None:
        """``static``: the node's own configuration, as for ``metadata.effective``."""
        self._static = static
        self._image = EMPTY
        self.names_version = EMPTY.offset
        # Settings of groups by the configurations of this image. Every heartbeat needs them.
        self._configs: Configs = EMPTY.configs
        self._settings: dict[str, ConsumerSettings] = {}
        self._share_settings: dict[str, ShareSettings] = {}

    def apply(self, image: MetadataImage) -> None:
        before = self._image
        if image.topics.ids is not before.topics.ids or image.acls is not before.acls:
            self.names_version = image.offset
        self._image = image

    @property
    def topics(self) -> Topics:
        return self._image.topics

    def topic_id_of(self, name: str) -> bytes | None:
        return self.topics.ids.get(name)

    def settings(self, group_id: str) -> ConsumerSettings:
        self._check_newest()
        found = self._settings.get(group_id)
        if found is None:
            if len(self._settings) == _REMEMBERED_MAX:
                self._settings.clear()
            config = effective_group_config(self._image, group_id, static=self._static)
            found = self._settings[group_id] = ConsumerSettings(
                config.consumer_session_timeout_ms,
                config.consumer_heartbeat_interval_ms,
                config.consumer_assignment_interval_ms,
            )
        return found

    def share_settings(self, group_id: str) -> ShareSettings:
        self._check_newest()
        found = self._share_settings.get(group_id)
        if found is None:
            if len(self._share_settings) == _REMEMBERED_MAX:
                self._share_settings.clear()
            config = effective_group_config(self._image, group_id, static=self._static)
            found = self._share_settings[group_id] = ShareSettings(
                config.share_session_timeout_ms,
                config.share_heartbeat_interval_ms,
                config.share_assignment_interval_ms,
                NodeSettings.group_share_max_size.read(self._static),
            )
        return found

    def _check_newest(self) -> None:
        """Forget the settings of earlier configurations."""
        if self._image.configs is not self._configs:
            self._configs = self._image.configs
            self._settings.clear()
            self._share_settings.clear()
