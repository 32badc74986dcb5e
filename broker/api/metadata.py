"""Metadata (3), versions 0-13: brokers, topics, and who leads each partition.

From version 12 on topics can be asked for by id: a topic with an id is, whatever name it has. In
versions 10 and 11, which have the field, ids and null names are refused, as in Kafka.

Deviations: a topic that is made by asking for it is waited for, two seconds at most, before
LEADER_NOT_AVAILABLE is answered, and 64 of them are made at the most; in version 0 partitions with
absent replicas are told like all others; everybody is authorized for everything.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from broker.api import topic_requests
from broker.api.call import NO_OPERATIONS, Call, Served
from broker.api.describe_cluster import CLUSTER_OPERATIONS
from broker.api.topic_requests import AT_ONCE
from broker.api.topic_views import Perspective, TopicView
from broker.service.context import BrokerContext
from broker.service.requests import NO_TOPIC_ID
from metadata.image import MetadataImage, Topic
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import metadata as messages
from stele.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import SLICE_STEPS, Slices

logger = logging.getLogger(__name__)

TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""All that may be done to a topic (KIP-430): there are no ACLs, so everybody may."""

_CREATE_TIMEOUT_S = 2.0
_MAX_NAME = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


async def handle(context: BrokerContext, call: Call, request: MetadataRequest) -> MetadataResponse:
    if call.version < 12 and any(
        topic.name is None or topic.topic_id != NO_TOPIC_ID for topic in request.topics or ()
    ):
        return refuse(call, request, ErrorCode.INVALID_REQUEST)
    failures = await _create_missing(context, request)
    image = context.image()
    wants_operations = request.include_topic_authorized_operations
    perspective = Perspective(
        call.caller.listener,
        knows_listener_errors=call.version >= 6,
        authorized_operations=TOPIC_OPERATIONS if wants_operations else NO_OPERATIONS,
    )
    view = call.topic_views.of(image, perspective)
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = await _in_slices(view, image, image.sorted_topics())
    else:
        topics = await _in_slices(
            view,
            image,
            (
                _named(image, failures, asked.name)
                if asked.name is not None and asked.topic_id == NO_TOPIC_ID
                else _identified(image, asked.topic_id)
                for asked in request.topics
            ),
        )
    wants_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                registration.broker_id, endpoint.host, endpoint.port, registration.rack
            )
            for registration, endpoint in context.live_endpoints(call.caller)
        ],
        cluster_id=context.cluster_id,
        controller_id=context.any_live_broker(),
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NO_OPERATIONS,
    )


async def _in_slices(
    view: TopicView, image: MetadataImage, found: Iterable[Topic | MetadataResponseTopic]
) -> list[MetadataResponseTopic]:
    topics = []
    slices = Slices(SLICE_STEPS)
    for each in found:
        if isinstance(each, Topic):
            topics.append(view.topic(image, each))
            await slices.step(1 + len(each.partitions))
        else:
            topics.append(each)
            await slices.step()
    return topics


def _named(
    image: MetadataImage, failures: dict[str, ErrorCode], name: str
) -> Topic | MetadataResponseTopic:
    topic = image.topic(name)
    if topic is not None:
        return topic
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not is_valid_topic_name(name):
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(failures.get(name, error), name=name)


def _identified(image: MetadataImage, topic_id: bytes) -> Topic | MetadataResponseTopic:
    topic = image.topic_by_id(topic_id)
    if topic is not None:
        return topic
    return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)


def is_valid_topic_name(name: str) -> bool:
    """Kafka's rule: 1 to 249 of letters, digits, dot, underscore and hyphen; not . and not .."""
    return len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None and name not in (".", "..")


# ---------------------------------------------------------------------- auto creation


async def _create_missing(context: BrokerContext, request: MetadataRequest) -> dict[str, ErrorCode]:
    """Make the topics asked for by name that are not there; return the errors of those.

    One decision's worth of them. The others are "not available" yet: clients ask again.
    """
    if not (context.config.auto_create_topics_enable and request.allow_auto_topic_creation):
        return {}
    image = context.image()
    asked = dict.fromkeys(
        topic.name for topic in request.topics or () if topic.topic_id == NO_TOPIC_ID
    )
    missing = []
    slices = Slices(SLICE_STEPS)
    for name in asked:
        if name is not None and image.topic(name) is None and is_valid_topic_name(name):
            missing.append(name)
        await slices.step()
    if not missing:
        return {}
    later = dict.fromkeys(missing[AT_ONCE:], ErrorCode.LEADER_NOT_AVAILABLE)
    missing = missing[:AT_ONCE]
    topics = [pb.NewTopic(name=name, partitions=-1, replication_factor=-1) for name in missing]
    try:
        results = await topic_requests.create(context, topics, timeout_s=_CREATE_TIMEOUT_S)
    except ApiError as error:
        logger.warning("auto creation of %s: %s", ", ".join(missing), error)
        return later | dict.fromkeys(missing, ErrorCode.LEADER_NOT_AVAILABLE)
    return later | {result.name: _creation_error(result) for result in results}


def _creation_error(result: pb.CreateTopicsResponse.Topic) -> ErrorCode:
    """What a client is told of a topic that is still not in the image afterwards."""
    error = topic_requests.error_code(result.error)
    if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) or error.retriable:
        return ErrorCode.LEADER_NOT_AVAILABLE
    logger.warning("auto creation of %s: %s: %s", result.name, error.name, result.message)
    return error


def refuse(call: Call, request: MetadataRequest, error: ErrorCode) -> MetadataResponse:
    no_name = None if call.version >= 12 else ""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                error, topic.name if topic.name is not None else no_name, topic.topic_id
            )
            for topic in request.topics or ()
        ],
        error_code=error,
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
