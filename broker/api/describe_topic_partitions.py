"""DescribeTopicPartitions (75), version 0: topics in pages, with their eligible leaders (KIP-966).

Deviations: none. Topics come by name; a page ends after so many partitions as the request or
``max.request.partition.size.limit`` allows, whichever is less, and says where the next one begins.
"""

from __future__ import annotations

from broker.api.call import Call, Served
from broker.api.metadata import TOPIC_OPERATIONS, is_valid_topic_name
from broker.service.context import BrokerContext
from metadata.image import PartitionState, Topic
from stele.errors import ErrorCode
from stele.wire.kafka.messages import describe_topic_partitions as messages
from stele.wire.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from storage.turns import SLICE_STEPS, Slices


async def handle(
    context: BrokerContext, call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor or Cursor("", 0)
    if cursor.partition_index < 0:
        return refuse(call, request, ErrorCode.INVALID_REQUEST)
    image = context.image()
    limit = context.config.max_request_partition_size_limit
    left = max(1, min(request.response_partition_limit, limit))
    asked = {topic.name for topic in request.topics} or image.topic_ids.keys()
    live = {each.broker_id for each in image.brokers.values() if not each.fenced}
    response = DescribeTopicPartitionsResponse()
    slices = Slices(SLICE_STEPS)
    for name in sorted(name for name in asked if name >= cursor.topic_name):
        await slices.step()
        topic = image.topic(name)
        if topic is None:
            response.topics.append(_failed(name, _missing(name)))
            continue
        first = cursor.partition_index if name == cursor.topic_name else 0
        if left == 0:
            response.next_cursor = Cursor(name, first)
            break
        partitions = topic.partitions[first : first + left]
        response.topics.append(_topic(topic, first, partitions, live))
        left -= len(partitions)
        if first + len(partitions) < len(topic.partitions):
            response.next_cursor = Cursor(name, first + len(partitions))
            break
    return response


def _topic(
    topic: Topic, first: int, partitions: tuple[PartitionState, ...], live: set[int]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=list(state.elr),
                last_known_elr=list(state.last_known_elr),
                offline_replicas=[each for each in state.replicas if each not in live],
            )
            for number, state in enumerate(partitions, first)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _missing(name: str) -> ErrorCode:
    if is_valid_topic_name(name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION


def _failed(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name)


def refuse(
    call: Call, request: DescribeTopicPartitionsRequest, error: ErrorCode
) -> DescribeTopicPartitionsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return DescribeTopicPartitionsResponse(topics=[_failed(name, error) for name in names])


SERVED = Served(messages.API, refuse, handle_async=handle)
