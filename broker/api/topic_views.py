"""Topics in the form of the Metadata API, built once and reused while they do not change."""

from __future__ import annotations

from typing import NamedTuple

from metadata.brokers import Brokers
from metadata.feature_levels import FeatureLevels
from metadata.image import MetadataImage
from metadata.internal_topics import INTERNAL_TOPICS
from metadata.partitions import NO_LEADER, PartitionState
from metadata.topics import Topic
from stele.errors import ErrorCode
from stele.wire.kafka.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

_SPARE = 64
"""The views of deleted topics that may be kept, as a number beside the topics there are."""


class Perspective(NamedTuple):
    """Two callers with equal perspectives see a topic alike."""

    listener: str
    knows_listener_errors: bool  # LISTENER_NOT_FOUND came with version 6


class TopicView:
    """All topics from one perspective, while brokers and feature levels stay as they are."""

    def __init__(self, brokers: Brokers, perspective: Perspective) -> None:
        self._perspective = perspective
        # Brokers that are up, and those of them that a client of this listener can reach.
        self._live = {each.broker_id for each in brokers.values() if not each.fenced}
        self._reachable = {
            each.broker_id
            for each in brokers.values()
            if not each.fenced and each.endpoint(perspective.listener) is not None
        }
        # By id, with the topic it was built of: a changed topic is another object.
        self._built: dict[bytes, tuple[Topic, MetadataResponseTopic]] = {}

    def topic(self, image: MetadataImage, topic: Topic) -> MetadataResponseTopic:
        """The topic's part of an answer. It is shared between answers: not to be changed."""
        built = self._built.get(topic.topic_id)
        if built is not None and built[0] is topic:
            return built[1]
        if len(self._built) > len(image.topics) + _SPARE:
            self._built.clear()
        view = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[
                self._partition(i, state, image.offline_replicas(state))
                for i, state in enumerate(topic.partitions)
            ],
        )
        self._built[topic.topic_id] = (topic, view)
        return view

    @staticmethod
    def with_operations(topic: MetadataResponseTopic, operations: int) -> MetadataResponseTopic:
        """The same for a caller that asks which operations it may do."""
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=topic.partitions,
            topic_authorized_operations=operations,
        )

    def _partition(
        self, index: int, state: PartitionState, offline: list[int]
    ) -> MetadataResponsePartition:
        error, leader = ErrorCode.NONE, state.leader
        if leader not in self._reachable:
            error, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
            if state.leader in self._live and self._perspective.knows_listener_errors:
                error = ErrorCode.LISTENER_NOT_FOUND
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            offline_replicas=offline,
        )


class TopicViews:
    """The views of one broker's clients: one for each perspective."""

    def __init__(self) -> None:
        self._seen: tuple[Brokers, FeatureLevels] | None = None
        self._views: dict[Perspective, TopicView] = {}

    def of(self, image: MetadataImage, perspective: Perspective) -> TopicView:
        seen = self._seen  # images share what did not change
        if seen is None or image.brokers is not seen[0] or image.features is not seen[1]:
            self._views.clear()
            self._seen = image.brokers, image.features
        view = self._views.get(perspective)
        if view is None:
            view = self._views[perspective] = TopicView(image.brokers, perspective)
        return view
