"""DeleteRecords (21), versions 0-2: the log of a partition begins later (KIP-107).

Deviations: at the answer the new start is on disk on the leader and on every replica that is in the
ISR or could join it. The leader does not wait for other replicas.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from broker.api.handler import RequestContext, Served
from broker.replication.deletion import DeletionResult
from broker.service import records
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from broker.service.records import Asked
from stele.errors import ErrorCode
from stele.wire.kafka.messages import delete_records as messages
from stele.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from storage.turns import SLICE_STEPS, Slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    check_named(sum(len(topic.partitions) for topic in request.topics), "partitions")
    asked = [
        Asked(topic.name, each.partition_index, each.offset)
        for topic in request.topics
        for each in topic.partitions
    ]
    results = await records.delete_records(
        context, request_context.caller, asked, request.timeout_ms
    )
    return await _response(request, iter(results))


async def _response(
    request: DeleteRecordsRequest, results: Iterator[DeletionResult]
) -> DeleteRecordsResponse:
    slices = Slices(SLICE_STEPS)

    def told(partition: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        result = next(results)
        return DeleteRecordsPartitionResult(
            partition.partition_index, result.low_watermark, result.error
        )

    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(topic.name, await slices.map(told, topic.partitions))
            for topic in request.topics
        ]
    )


async def refuse(
    request_context: RequestContext, request: DeleteRecordsRequest, error: ErrorCode
) -> DeleteRecordsResponse:
    return await _response(request, repeat(DeletionResult(error)))


SERVED = Served(messages.API, refuse, handle_async=handle)
