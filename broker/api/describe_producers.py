"""DescribeProducers (61), version 0: the producers that a replica of this broker knows (KIP-664).

Deviations: the time of the last append is by this replica's clock, as in its snapshots.

A request with a field of ours, ``producer_id``, asks the leader of one partition for one producer.
Brokers ask so on behalf of publishers (``broker.gateway.leaders``). The answer has the batches that
the leader remembers and the high watermark. It needs the permission to WRITE, as the batches did.
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
    ProducerBatch,
    ProducerState,
    TopicResponse,
)
from storage.producer_state import ProducerEntry
from storage.turns import SLICE_STEPS, Slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    if request.producer_id >= 0:
        return await _one_producer(context, request_context, request)
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


async def _one_producer(
    context: BrokerContext, request_context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    if [len(topic.partition_indexes) for topic in request.topics] != [1]:
        return await refuse(request_context, request, ErrorCode.INVALID_REQUEST)
    topic = request.topics[0]
    number = topic.partition_indexes[0]
    topics = producers.writable_topics(context, request_context.caller)
    found = topics.partition(topic.name, topic.topic_id, number)
    if isinstance(found, ErrorCode):
        return await refuse(request_context, request, found)
    try:
        known = producers.producer_of(
            context, found, request.producer_id, request.current_leader_epoch
        )
    except ApiError as error:
        return await refuse(request_context, request, error.code)
    described = PartitionResponse(number, high_watermark=known.high_watermark)
    if known.entry is not None:
        state = _state(known.entry)
        state.batches = [
            ProducerBatch(batch.base_sequence, batch.last_sequence, batch.base_offset)
            for batch in known.entry.batches
        ]
        described.active_producers.append(state)
    return DescribeProducersResponse(topics=[TopicResponse(topic.name, [described])])


def _state(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_append_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )


async def refuse(
    request_context: RequestContext, request: DescribeProducersRequest, error: ErrorCode
) -> DescribeProducersResponse:
    slices = Slices(SLICE_STEPS)
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                await slices.map(
                    lambda number: PartitionResponse(number, error), topic.partition_indexes
                ),
            )
            for topic in request.topics
        ]
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
