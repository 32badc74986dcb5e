"""AlterShareGroupOffsets (91), version 0: a share group without members begins elsewhere (KIP-932).

Deviations: none known.
"""

from __future__ import annotations

from itertools import islice

from broker.api.handler import RequestContext, Served
from broker.service import share_offsets
from broker.service.context import BrokerContext
from broker.service.share_offsets import Outcome
from broker.service.topics import NO_TOPIC_ID
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import alter_share_group_offsets as messages
from stele.wire.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from storage.turns import in_slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    offsets = [
        (topic.topic_name, each.partition_index, each.start_offset)
        for topic in request.topics
        for each in topic.partitions
    ]
    try:
        outcomes = await share_offsets.alter(
            context, request_context.caller, request.group_id, offsets
        )
    except ApiError as error:
        return AlterShareGroupOffsetsResponse(
            error_code=error.code, error_message=error.message or None
        )

    def told(item: tuple[tuple[str, int, int], Outcome]) -> AlterShareGroupOffsetsResponsePartition:
        (_, number, _), outcome = item
        return AlterShareGroupOffsetsResponsePartition(number, outcome.error, outcome.message)

    ids = {name: each.topic_id for (name, _, _), each in zip(offsets, outcomes, strict=True)}
    partitions = iter(await in_slices(told, zip(offsets, outcomes, strict=True)))
    return AlterShareGroupOffsetsResponse(
        responses=[
            AlterShareGroupOffsetsResponseTopic(
                topic.topic_name,
                ids.get(topic.topic_name, NO_TOPIC_ID),
                list(islice(partitions, len(topic.partitions))),
            )
            for topic in request.topics
        ]
    )


def refuse(
    request_context: RequestContext, request: AlterShareGroupOffsetsRequest, error: ErrorCode
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
