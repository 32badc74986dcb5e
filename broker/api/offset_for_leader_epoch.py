"""OffsetForLeaderEpoch (23), versions 2-4: where an epoch ends in the leader's log (KIP-320).

Deviations: none known.
"""

from __future__ import annotations

from itertools import islice

from broker.api.handler import RequestContext, Served
from broker.replication.types import EpochQuery, OffsetResult
from broker.service import offsets
from broker.service.context import BrokerContext
from broker.service.topics import NO_TOPIC_ID
from stele.errors import ErrorCode
from stele.wire.kafka.messages import offset_for_leader_epoch as messages
from stele.wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from storage.turns import SLICE_STEPS, Slices, in_slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    topics = offsets.topics(context, request_context.caller)

    def ask(named: tuple[str, OffsetForLeaderPartition]) -> EpochEndOffset:
        topic, partition = named
        found = topics.partition(topic, NO_TOPIC_ID, partition.partition)
        if isinstance(found, ErrorCode):
            return _answer(partition.partition, OffsetResult(found))
        query = EpochQuery(found, partition.leader_epoch, partition.current_leader_epoch)
        (result,) = offsets.epoch_ends(context, [query])
        return _answer(partition.partition, result)

    named = ((topic.topic, each) for topic in request.topics for each in topic.partitions)
    answers = iter(await in_slices(ask, named))
    return OffsetForLeaderEpochResponse(
        topics=await in_slices(
            lambda topic: OffsetForLeaderTopicResult(
                topic.topic, list(islice(answers, len(topic.partitions)))
            ),
            request.topics,
        )
    )


def _answer(partition: int, result: OffsetResult) -> EpochEndOffset:
    return EpochEndOffset(
        error_code=result.error,
        partition=partition,
        leader_epoch=result.leader_epoch,
        end_offset=result.offset,
    )


async def refuse(
    request_context: RequestContext, request: OffsetForLeaderEpochRequest, error: ErrorCode
) -> OffsetForLeaderEpochResponse:
    slices = Slices(SLICE_STEPS)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                await slices.map(
                    lambda each: EpochEndOffset(error, each.partition), topic.partitions
                ),
            )
            for topic in request.topics
        ]
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
