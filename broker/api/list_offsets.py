"""ListOffsets (2), versions 1-11: offsets by time.

Deviations: nothing is tiered, so the earliest local offset (-4) is the earliest, and the
latest tiered (-5) and the earliest not yet tiered (-6) are none.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

from broker.api.handler import RequestContext, Served
from broker.replication.types import EARLIEST_TIMESTAMP, MAX_TIMESTAMP, OffsetQuery, OffsetResult
from broker.service import offsets
from broker.service.context import BrokerContext
from broker.service.topics import NO_TOPIC_ID, Topics
from stele.errors import ErrorCode
from stele.wire.kafka.isolation import READ_COMMITTED
from stele.wire.kafka.messages import list_offsets as messages
from stele.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from storage.turns import SLICE_STEPS, Slices, in_slices

EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# The version from which a special timestamp may be asked for.
_SPECIAL_FROM = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


async def handle(
    context: BrokerContext, request_context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    topics = offsets.topics(context, request_context.caller)
    asked = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    named = [(topic.name, each) for topic in request.topics for each in topic.partitions]
    items = await in_slices(
        lambda each: (
            OffsetResult(ErrorCode.INVALID_REQUEST)
            if asked[each[0], each[1].partition_index] > 1
            else _item(topics, request_context.version, *each)
        ),
        named,
    )
    results = await offsets.list_offsets(
        context, items, read_committed=request.isolation_level == READ_COMMITTED
    )
    told = zip(named, results, strict=True)
    answers = iter(await in_slices(lambda each: _answer(each[0][1].partition_index, each[1]), told))
    return ListOffsetsResponse(
        topics=await in_slices(
            lambda topic: ListOffsetsTopicResponse(
                topic.name, list(islice(answers, len(topic.partitions)))
            ),
            request.topics,
        )
    )


def _item(
    topics: Topics, version: int, name: str, partition: ListOffsetsPartition
) -> OffsetQuery | OffsetResult:
    found = topics.partition(name, NO_TOPIC_ID, partition.partition_index)
    if isinstance(found, ErrorCode):
        return OffsetResult(found)
    timestamp_ms = partition.timestamp
    if timestamp_ms < EARLIEST_TIMESTAMP and version < _SPECIAL_FROM.get(timestamp_ms, 2**15):
        return OffsetResult(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return OffsetResult(ErrorCode.NONE)
    if timestamp_ms == EARLIEST_LOCAL:
        timestamp_ms = EARLIEST_TIMESTAMP
    return OffsetQuery(found, timestamp_ms, partition.current_leader_epoch)


def _answer(index: int, result: OffsetResult) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=result.error,
        timestamp=result.timestamp_ms,
        offset=result.offset,
        leader_epoch=result.leader_epoch,
    )


async def refuse(
    request_context: RequestContext, request: ListOffsetsRequest, error: ErrorCode
) -> ListOffsetsResponse:
    slices = Slices(SLICE_STEPS)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                await slices.map(
                    lambda each: ListOffsetsPartitionResponse(each.partition_index, error),
                    topic.partitions,
                ),
            )
            for topic in request.topics
        ]
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
