"""The metadata that a broker shows after the controller told it that it leads nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER
from metadata.topics import Topic


class Metadata(Protocol):
    """The one holder of the broker's metadata."""

    @property
    def image(self) -> MetadataImage:
        """As published last."""
        ...


class VisibleImage:
    """The image as clients may see it.

    A broker without room for the metadata log uses old metadata. Its partitions have other leaders
    by now. It does not know which, but it must not send clients to itself for ever.
    """

    def __init__(self, broker_id: int, metadata: Metadata, deposed: Callable[[], bool]) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._deposed = deposed
        self._hidden: tuple[MetadataImage, MetadataImage] | None = None  # the true one, and this

    def __call__(self) -> MetadataImage:
        image = self._metadata.image
        if not self._deposed():
            self._hidden = None
            return image
        if self._hidden is None or self._hidden[0] is not image:
            self._hidden = image, without_leader(image, self._broker_id)
        return self._hidden[1]


def without_leader(image: MetadataImage, broker_id: int) -> MetadataImage:
    """The image without leaders in the partitions that this broker leads."""

    def hidden(topic: Topic) -> Topic:
        return replace(
            topic,
            partitions=tuple(
                replace(state, leader=NO_LEADER) if state.leader == broker_id else state
                for state in topic.partitions
            ),
        )

    topics = image.topics
    for topic in image.sorted_topics():
        if any(state.leader == broker_id for state in topic.partitions):
            topics = topics.replaced(hidden(topic))
    return replace(image, topics=topics)
