"""DeleteRecords (21), versions 0-2: the log of a partition begins later (KIP-107).

Deviations: at the answer the new start is on disk on the leader and on every replica that is in the
ISR or could join it. The leader does not wait for other replicas.
"""

from __future__ import annotations

from collections import Counter

from broker.api.handler import RequestContext, Served
from broker.replication.deletion import Deletion, DeletionResult
from broker.service import records
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from broker.service.topics import NO_TOPIC_ID, Topics
from stele.errors import ErrorCode
from stele.wire.kafka.messages import delete_records as messages
from stele.wire.kafka.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from storage.turns import in_slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    topics = records.topics(context, request_context.caller)
    asked = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    check_named(asked.total(), "partitions")
    items = await in_slices(
        lambda named: (
            DeletionResult(ErrorCode.INVALID_REQUEST)
            if asked[named[0], named[1].partition_index] > 1
            else _item(topics, named[0], named[1].partition_index, named[1].offset)
        ),
        ((topic.name, partition) for topic in request.topics for partition in topic.partitions),
    )
    results = iter(await records.delete_records(context, items, request.timeout_ms))
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name,
                [_answer(each.partition_index, next(results)) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _item(topics: Topics, name: str, partition: int, offset: int) -> Deletion | DeletionResult:
    found = topics.partition(name, NO_TOPIC_ID, partition)
    if isinstance(found, ErrorCode):
        return DeletionResult(found)
    return Deletion(found, offset)


def _answer(partition: int, result: DeletionResult) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition, result.low_watermark, result.error)


def refuse(
    request_context: RequestContext, request: DeleteRecordsRequest, error: ErrorCode
) -> DeleteRecordsResponse:
    failed = DeletionResult(error)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name, [_answer(each.partition_index, failed) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
