"""DescribeTopicPartitions (75), version 0: topics in pages, with their eligible leaders (KIP-966).

Deviations: none. Topics come by name; a page ends after so many partitions as the request or
``max.request.partition.size.limit`` allows, whichever is less, and says where the next one begins.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.context import BrokerContext
from broker.service.metadata import (
    MissingTopic,
    TopicPage,
    page_of_partitions,
    topic_operations,
)
from metadata.image import MetadataImage
from metadata.internal_topics import INTERNAL_TOPICS
from stele.errors import ErrorCode
from stele.wire.kafka.messages import describe_topic_partitions as messages
from stele.wire.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from storage.turns import SLICE_STEPS, Slices, in_slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor or Cursor("", 0)
    if cursor.partition_index < 0:
        return await refuse(request_context, request, ErrorCode.INVALID_REQUEST)
    limit = context.config.max_request_partition_size_limit
    page = await page_of_partitions(
        context,
        request_context.caller,
        {topic.name for topic in request.topics},
        cursor.topic_name,
        cursor.partition_index,
        max(1, min(request.response_partition_limit, limit)),
    )
    response = DescribeTopicPartitionsResponse()
    slices = Slices(SLICE_STEPS)
    for each in page.topics:
        if isinstance(each, MissingTopic):
            response.topics.append(_failed(each.name or "", each.error))
            await slices.step()
            continue
        operations = topic_operations(context, request_context.caller, each.topic.name)
        response.topics.append(_topic(page.image, each, operations))
        await slices.step(1 + len(each.partitions))
    if page.next_topic is not None:
        response.next_cursor = Cursor(page.next_topic, page.next_partition)
    return response


def _topic(
    image: MetadataImage, page: TopicPage, operations: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=page.topic.name,
        topic_id=page.topic.topic_id,
        is_internal=page.topic.name in INTERNAL_TOPICS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=list(state.elr),
                last_known_elr=list(state.last_known_elr),
                offline_replicas=image.offline_replicas(state),
            )
            for number, state in enumerate(page.partitions, page.first)
        ],
        topic_authorized_operations=operations,
    )


def _failed(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name)


async def refuse(
    request_context: RequestContext, request: DescribeTopicPartitionsRequest, error: ErrorCode
) -> DescribeTopicPartitionsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    failed = await in_slices(lambda name: _failed(name, error), names)
    return DescribeTopicPartitionsResponse(topics=failed)


SERVED = Served(messages.API, refuse, handle_async=handle)
