"""Metadata: which topics a client may see, and those that are made by its asking for them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from broker.service.changes import accepted_change
from broker.service.context import BrokerContext
from broker.service.topics import Topics
from metadata.image import MetadataImage
from metadata.internal_topics import INTERNAL_TOPICS
from metadata.partitions import PartitionState
from metadata.topics import Topic
from runtime.administration.parts import error_code
from runtime.authorization.authorizer import Operation, allowed_operations, topic_resource
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.topic_names import fault_in
from stele.wire.v1 import admin_pb2 as pb
from stele.wire.v1.controller_pb2 import ReadIndexRequest, ReadIndexResponse
from storage.turns import SLICE_STEPS, Slices

logger = logging.getLogger(__name__)

_CREATE_TIMEOUT_S = 2.0

_MADE_AT_ONCE = 64
"""Topics that one Metadata request makes: one decision's worth."""


class MissingTopic(NamedTuple):
    """A requested topic that is left out, and the reason."""

    name: str | None
    topic_id: bytes
    error: ErrorCode


class FoundTopics(NamedTuple):
    """The requested topics, in the order of the request, as they stand in one image."""

    image: MetadataImage
    topics: list[Topic | MissingTopic]


async def all_topics(context: BrokerContext, caller: Caller) -> FoundTopics:
    """By name; those that the caller may not see are left out."""
    topics = Topics(context, caller, Operation.DESCRIBE)
    slices = Slices(SLICE_STEPS)
    found: list[Topic | MissingTopic] = []
    for topic in topics.image.sorted_topics():
        if topics.may(topic.name):
            found.append(topic)
        await slices.step()
    return FoundTopics(topics.image, found)


async def find_topics(
    context: BrokerContext,
    caller: Caller,
    asked: Sequence[str | bytes],
    *,
    create_missing: bool = False,
) -> FoundTopics:
    """The topics of names and ids. ``create_missing``: also create topics of unknown names, if
    ``auto.create.topics.enable`` allows it."""
    failures: dict[str, ErrorCode] = {}
    if create_missing and context.config.auto_create_topics_enable:
        failures = await _create_missing(context, caller, asked)
    topics = Topics(context, caller, Operation.DESCRIBE)
    slices = Slices(SLICE_STEPS)
    found: list[Topic | MissingTopic] = []
    for each in asked:
        if isinstance(each, bytes):
            topic = topics.identified(each)
            missing = MissingTopic(None, each, ErrorCode.NONE)
        else:
            topic = topics.named(each)
            missing = MissingTopic(each, b"", ErrorCode.NONE)
            if topic is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                topic = failures.get(each, missing_name_error(each))
        found.append(missing._replace(error=topic) if isinstance(topic, ErrorCode) else topic)
        await slices.step()
    return FoundTopics(topics.image, found)


def missing_name_error(name: str) -> ErrorCode:
    """The error for a topic that is not there."""
    if fault_in(name) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION


def topic_operations(context: BrokerContext, caller: Caller, name: str) -> int:
    """What the caller may do to a topic, as bits (KIP-430)."""
    return allowed_operations(context.authorizer, caller, topic_resource(name))


# ---------------------------------------------------------------------- the present


async def present_image(
    context: BrokerContext, *, min_offset: int, linearizable: bool, patience_s: float
) -> MetadataImage:
    """The image once it is new enough for a question: with the records up to ``min_offset``, and
    for a linearizable read with everything that was acknowledged before.

    A deposed broker hides the partitions that it led, and its image is then the metadata of no
    moment. A linearizable read waits until the broker has applied what deposed it.

    Raises ApiError BROKER_NOT_AVAILABLE if another broker has newer metadata: this one has no
    contact to the controllers, or the image was not new enough within ``patience_s``.
    """
    deadline = context.clock.monotonic() + patience_s
    if linearizable:
        min_offset = max(min_offset, await _read_index(context, patience_s))
    left_s = max(0.0, deadline - context.clock.monotonic())

    def answers(image: MetadataImage) -> bool:
        return image.offset >= min_offset and not (linearizable and context.deposed())

    await context.wait_until(answers, left_s)
    if not linearizable and not context.lease_valid():
        raise ApiError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"broker {context.broker_id} has no contact to the active controller, "
            "so what it knows may be outdated",
        )
    image = context.image()
    if not answers(image):
        raise ApiError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"broker {context.broker_id} has not applied metadata up to {min_offset}"
            + (", nor what made other brokers lead its partitions" if context.deposed() else ""),
        )
    return image


async def _read_index(context: BrokerContext, timeout_s: float) -> int:
    """The metadata offset that includes every change acknowledged before this call."""
    answer = await context.controller.call(
        "/stele.v1.Controller/ReadIndex",
        ReadIndexRequest(),
        ReadIndexResponse,
        timeout_s=timeout_s,
    )
    if answer.error != ErrorCode.NONE:
        raise ApiError(error_code(answer.error), f"the controller answers {answer.error}")
    return answer.metadata_offset


# ---------------------------------------------------------------------- pages of partitions


class TopicPage(NamedTuple):
    """Partitions of one topic, from ``first`` on."""

    topic: Topic
    first: int
    partitions: tuple[PartitionState, ...]


class Page(NamedTuple):
    """The part of the topics that one answer holds. ``next_topic`` is None in the last part."""

    image: MetadataImage
    topics: list[TopicPage | MissingTopic]
    next_topic: str | None = None
    next_partition: int = -1


async def page_of_partitions(
    context: BrokerContext,
    caller: Caller,
    names: set[str],
    first_topic: str,
    first_partition: int,
    limit: int,
) -> Page:
    """Topics in the order of their names, from a partition of a topic on, at most ``limit``
    partitions. Without ``names`` all topics that the caller may see."""
    topics = Topics(context, caller, Operation.DESCRIBE)
    image = topics.image
    asked = names or image.topics.ids.keys()
    left = limit
    told: list[TopicPage | MissingTopic] = []
    slices = Slices(SLICE_STEPS)
    for name in sorted(name for name in asked if name >= first_topic):
        await slices.step()
        if not names and not topics.may(name):
            continue
        topic = topics.named(name)
        if isinstance(topic, ErrorCode):
            if topic is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                topic = missing_name_error(name)
            if names:
                told.append(MissingTopic(name, b"", topic))
            continue
        first = first_partition if name == first_topic else 0
        if left == 0:
            return Page(image, told, name, first)
        partitions = topic.partitions[first : first + left]
        told.append(TopicPage(topic, first, partitions))
        left -= len(partitions)
        if first + len(partitions) < len(topic.partitions):
            return Page(image, told, name, first + len(partitions))
    return Page(image, told)


# ---------------------------------------------------------------------- auto creation


async def _create_missing(
    context: BrokerContext, caller: Caller, asked: Sequence[str | bytes]
) -> dict[str, ErrorCode]:
    """Make the topics asked for by name that are not there; return the errors of those.

    One decision's worth of them. The others are "not available" yet: clients ask again. Internal
    topics are made with settings of their own when a coordinator is needed, and not here.
    """
    topics = Topics(context, caller, Operation.DESCRIBE)
    missing = []
    slices = Slices(SLICE_STEPS)
    for name in dict.fromkeys(asked):
        if (
            isinstance(name, str)
            and topics.named(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            and fault_in(name) is None
            and name not in INTERNAL_TOPICS
        ):
            missing.append(name)
        await slices.step()
    if not missing:
        return {}
    later = dict.fromkeys(missing[_MADE_AT_ONCE:], ErrorCode.LEADER_NOT_AVAILABLE)
    missing = missing[:_MADE_AT_ONCE]
    wanted = [pb.NewTopic(name=name, partitions=-1, replication_factor=-1) for name in missing]
    try:
        request = pb.CreateTopicsRequest(topics=wanted)
        answer = await accepted_change(context, caller, request, timeout_s=_CREATE_TIMEOUT_S)
    except ApiError as error:
        logger.warning("auto creation of %s: %s", ", ".join(missing), error)
        return later | dict.fromkeys(missing, ErrorCode.LEADER_NOT_AVAILABLE)
    return later | {result.name: _creation_error(result) for result in answer.topics}


def _creation_error(result: pb.CreateTopicsResponse.Topic) -> ErrorCode:
    """The error for a topic that is still not in the image afterwards."""
    error = error_code(result.error)
    if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) or error.retriable:
        return ErrorCode.LEADER_NOT_AVAILABLE
    logger.warning("auto creation of %s: %s: %s", result.name, error.name, result.message)
    return error
