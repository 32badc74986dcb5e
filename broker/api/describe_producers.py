"""DescribeProducers (61), version 0: the producers that a replica of this broker knows (KIP-664).

Deviations: there are no transactions, so no producer has one under way.
"""

from __future__ import annotations

from broker.api.call import Call, Served
from broker.service import requests
from broker.service.context import BrokerContext
from metadata.image import Topic
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import describe_producers as messages
from stele.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from storage.producer_state import ProducerEntry
from storage.turns import SLICE_STEPS, Slices


async def handle(
    context: BrokerContext, call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    image = context.image()
    slices = Slices(SLICE_STEPS)
    topics = []
    for topic in request.topics:
        found = TopicResponse(topic.name)
        for number in topic.partition_indexes:
            described = _partition(context, image.topic(topic.name), number)
            found.partitions.append(described)
            await slices.step(1 + len(described.active_producers))
        topics.append(found)
        await slices.step()
    return DescribeProducersResponse(topics=topics)


def _partition(context: BrokerContext, topic: Topic | None, number: int) -> PartitionResponse:
    found = requests.partition_of(topic or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, number)
    if isinstance(found, ErrorCode):
        return PartitionResponse(number, found)
    try:
        producers = context.replicas.producers_of(found)
    except ApiError as error:
        return PartitionResponse(number, error.code)
    return PartitionResponse(number, active_producers=[_state(each) for each in producers])


def _state(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_append_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )


def refuse(
    call: Call, request: DescribeProducersRequest, error: ErrorCode
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name, [PartitionResponse(number, error) for number in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
