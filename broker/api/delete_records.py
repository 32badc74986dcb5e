"""DeleteRecords (21), versions 0-2: the log of a partition begins later (KIP-107).

Deviations: at the answer the new start is on disk on the leader and on every replica that is in the
ISR or could join it. The leader does not wait for other replicas.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.replication.deletion import DeletionResult
from broker.service import records
from broker.service.context import BrokerContext
from broker.service.records import Asked
from stele.errors import ErrorCode
from stele.wire.kafka.messages import delete_records as messages
from stele.wire.kafka.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    asked = [
        Asked(topic.name, each.partition_index, each.offset)
        for topic in request.topics
        for each in topic.partitions
    ]
    results = iter(
        await records.delete_records(context, request_context.caller, asked, request.timeout_ms)
    )
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name,
                [_answer(each.partition_index, next(results)) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


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
