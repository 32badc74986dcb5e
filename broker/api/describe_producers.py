"""DescribeProducers (61), version 0: the producers that a replica of this broker knows (KIP-664).

Deviations: the time of the last append is that of this replica's clock, as in its snapshots.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import producers
from broker.service.context import BrokerContext
from broker.service.topics import NO_TOPIC_ID, error_by_name
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
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
    context: BrokerContext, request_context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    topics = producers.topics(context, request_context.caller)
    slices = Slices(SLICE_STEPS)
    told = []
    for topic in request.topics:
        found = TopicResponse(topic.name)
        for number in topic.partition_indexes:
            described = _partition(
                context, topics.partition(topic.name, NO_TOPIC_ID, number), number
            )
            found.partitions.append(described)
            await slices.step(1 + len(described.active_producers))
        told.append(found)
        await slices.step()
    return DescribeProducersResponse(topics=told)


def _partition(
    context: BrokerContext, found: PartitionId | ErrorCode, number: int
) -> PartitionResponse:
    if isinstance(found, ErrorCode):
        return PartitionResponse(number, found)
    try:
        known = producers.producers_of(context, found)
    except ApiError as error:
        return PartitionResponse(number, error_by_name(error.code))
    return PartitionResponse(number, active_producers=[_state(each) for each in known])


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
    request_context: RequestContext, request: DescribeProducersRequest, error: ErrorCode
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
