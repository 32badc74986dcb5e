"""OffsetForLeaderEpoch (23), versions 2-4: where an epoch ends in the leader's log (KIP-320).

Deviations: none known.
"""

from __future__ import annotations

from broker import requests
from broker.api.call import Call, Served
from broker.context import BrokerContext
from broker.types import EpochQuery, OffsetResult
from stele.errors import ErrorCode
from stele.wire.kafka.messages import offset_for_leader_epoch as messages
from stele.wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from storage.turns import in_slices


async def handle(
    context: BrokerContext, call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    image = context.image()

    def ask(topic: str, partition: OffsetForLeaderPartition) -> OffsetResult:
        known = requests.find_topic(image, topic, b"")
        found = requests.partition_of(known, partition.partition)
        if isinstance(found, ErrorCode):
            return OffsetResult(found)
        query = EpochQuery(found, partition.leader_epoch, partition.current_leader_epoch)
        return requests.epoch_ends(context, [query])[0]

    results = iter(
        await in_slices(
            lambda named: ask(*named),
            ((topic.topic, each) for topic in request.topics for each in topic.partitions),
        )
    )
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                [_answer(partition.partition, next(results)) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(partition: int, result: OffsetResult) -> EpochEndOffset:
    return EpochEndOffset(
        error_code=result.error,
        partition=partition,
        leader_epoch=result.leader_epoch,
        end_offset=result.offset,
    )


def refuse(
    call: Call, request: OffsetForLeaderEpochRequest, error: ErrorCode
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic, [EpochEndOffset(error, p.partition) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
