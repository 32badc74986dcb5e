"""Metadata (3), versions 0-13: brokers, topics, and who leads each partition.

From version 12 on topics can be asked for by id: a topic with an id is, whatever name it has. In
versions 10 and 11, which have the field, ids and null names are refused, as in Kafka.

Deviations: a topic that is made by asking for it is waited for, two seconds at most, before
LEADER_NOT_AVAILABLE is answered, and 64 of them are made at the most; in version 0 partitions with
absent replicas are told like all others. Our own clients get a tagged field of ours,
``metadata_offset``.
"""

from __future__ import annotations

from broker.api.handler import NO_OPERATIONS, RequestContext, Served
from broker.api.topic_views import Perspective, TopicView
from broker.service.cluster import any_live_broker, cluster_operations, endpoints
from broker.service.context import BrokerContext
from broker.service.metadata import (
    FoundTopics,
    MissingTopic,
    all_topics,
    find_topics,
    topic_operations,
)
from broker.service.topics import NO_TOPIC_ID
from stele.errors import ErrorCode
from stele.wire.kafka.messages import metadata as messages
from stele.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from storage.turns import SLICE_STEPS, Slices, in_slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: MetadataRequest
) -> MetadataResponse:
    if request_context.version < 12 and any(
        topic.name is None or topic.topic_id != NO_TOPIC_ID for topic in request.topics or ()
    ):
        return await refuse(request_context, request, ErrorCode.INVALID_REQUEST)
    if request.topics is None or (request_context.version == 0 and not request.topics):
        found = await all_topics(context, request_context.caller)
    else:
        found = await find_topics(
            context,
            request_context.caller,
            [
                topic.topic_id
                if topic.name is None or topic.topic_id != NO_TOPIC_ID
                else topic.name
                for topic in request.topics
            ],
            create_missing=request.allow_auto_topic_creation,
        )
    operations = NO_OPERATIONS
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(context, request_context.caller)
    return MetadataResponse(
        topics=await _told(context, request_context, request, found),
        brokers=[
            MetadataResponseBroker(
                registration.broker_id, endpoint.host, endpoint.port, registration.rack
            )
            for registration, endpoint in endpoints(
                context, request_context.caller, request_context.caller.plane
            )
        ],
        cluster_id=context.cluster_id,
        controller_id=any_live_broker(context),
        cluster_authorized_operations=operations,
        metadata_offset=found.image.offset if request_context.is_ours else -1,
    )


async def _told(
    context: BrokerContext,
    request_context: RequestContext,
    request: MetadataRequest,
    found: FoundTopics,
) -> list[MetadataResponseTopic]:
    perspective = Perspective(
        request_context.caller.listener, knows_listener_errors=request_context.version >= 6
    )
    view = request_context.topic_views.of(found.image, perspective)
    topics = []
    slices = Slices(SLICE_STEPS)
    for each in found.topics:
        if isinstance(each, MissingTopic):
            topics.append(
                MetadataResponseTopic(each.error, each.name, each.topic_id or NO_TOPIC_ID)
            )
            await slices.step()
            continue
        told = view.topic(found.image, each)
        if request.include_topic_authorized_operations:
            told = TopicView.with_operations(
                told, topic_operations(context, request_context.caller, each.name)
            )
        topics.append(told)
        await slices.step(1 + len(each.partitions))
    return topics


async def refuse(
    request_context: RequestContext, request: MetadataRequest, error: ErrorCode
) -> MetadataResponse:
    no_name = None if request_context.version >= 12 else ""
    refused = await in_slices(
        lambda topic: MetadataResponseTopic(
            error, topic.name if topic.name is not None else no_name, topic.topic_id
        ),
        request.topics or (),
    )
    return MetadataResponse(topics=refused, error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
