"""OffsetDelete (47), version 0: forget offsets of a group (KIP-496).

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.coordinator.group.types import OffsetToDelete
from broker.service import group_offsets
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import offset_delete as messages
from stele.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    offsets = [
        OffsetToDelete(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    errors = iter(
        await group_offsets.delete(context, request_context.caller, request.group_id, offsets)
    )
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(each.partition_index, next(errors))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refuse(
    request_context: RequestContext, request: OffsetDeleteRequest, error: ErrorCode
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
