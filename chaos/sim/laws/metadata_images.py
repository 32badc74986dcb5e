"""The metadata that nodes have in memory."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene
from metadata.image import MetadataImage

_IMAGES_KEPT = 200


class MetadataIsTheSame(Law):
    """The committed metadata up to an offset is the same on every node that has reached it."""

    name = "metadata are the same everywhere"
    cadence = Cadence.NODES

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._images: dict[int, MetadataImage] = {}  # by offset
        self._compared: dict[int, MetadataImage] = {}  # the last compared image, by node

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in self._scene.ran:
            image = _image(node)
            if image is not None and image.offset >= 0 and self._compared.get(node.id) is not image:
                self._compared[node.id] = image
                self._compare(node, image, report)

    def _compare(self, node: SimNode, image: MetadataImage, report: Report) -> None:
        known = self._images.setdefault(image.offset, image)
        if known is not image:
            self.looked += 1
            if known != image:
                report(f"node {node.id} has other metadata up to offset {image.offset}")
        while len(self._images) > _IMAGES_KEPT:
            del self._images[min(self._images)]


def _image(node: SimNode) -> MetadataImage | None:
    live = node.node  # it has run
    if live is None:
        return None
    if live.controller is not None:
        return live.controller.image
    return None if live.broker is None else live.broker.image
