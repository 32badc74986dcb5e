"""The newest committed metadata."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import newest_image
from metadata.image import MetadataImage


class CommittedMetadata:
    """The newest committed metadata that a controller was ever seen with.

    What is committed stays committed while all controllers that know it are down. A controller that
    still runs may be cut off or restarted, and know only an old ISR and an old leader.
    """

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        # As of the last look. It is still the newest if no controller has run since.
        self.seen: MetadataImage | None = None

    @property
    def newest(self) -> MetadataImage | None:
        """As of now; None before any controller was seen."""
        image = newest_image(self._cluster)
        if image is not None and (self.seen is None or image.offset > self.seen.offset):
            self.seen = image
        return self.seen
