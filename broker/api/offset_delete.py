"""OffsetDelete (47), version 0: forget offsets of a group (KIP-496).

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.coordinator.group import types
from broker.coordinator.group.types import OffsetDeleteAnswer, OffsetToDelete
from broker.service import groups
from broker.service.context import BrokerContext
from metadata.topics import Topic
from runtime.authorization.authorizer import Operation
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
    topics = groups.topics(context, request_context.caller, Operation.READ)
    found = {each.name: topics.named(each.name) for each in request.topics}
    delete = types.OffsetDeleteRequest(
        request.group_id,
        tuple(
            OffsetToDelete(topic.name, each.partition_index)
            for topic in request.topics
            if isinstance(found[topic.name], Topic)
            for each in topic.partitions
        ),
    )
    answer: OffsetDeleteAnswer = await groups.ask(
        context,
        request_context.caller,
        Operation.DELETE,
        request.group_id,
        lambda machine, waiter, now: machine.delete_offsets(delete, waiter, now),
    )
    if answer.error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=answer.error)
    decided = iter(answer.errors)
    told = []
    for topic in request.topics:
        what = found[topic.name]
        errors = [what if isinstance(what, ErrorCode) else next(decided) for _ in topic.partitions]
        parts = [
            OffsetDeleteResponsePartition(each.partition_index, error)
            for each, error in zip(topic.partitions, errors, strict=True)
        ]
        told.append(OffsetDeleteResponseTopic(topic.name, parts))
    return OffsetDeleteResponse(topics=told)


def refuse(
    request_context: RequestContext, request: OffsetDeleteRequest, error: ErrorCode
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
