"""DeleteShareGroupOffsets (92), version 0: a share group without members forgets topics (KIP-932).

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import share_offsets
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import delete_share_group_offsets as messages
from stele.wire.kafka.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    check_named(len(request.topics), "topics")
    names = [each.topic_name for each in request.topics]
    try:
        outcomes = await share_offsets.delete(
            context, request_context.caller, request.group_id, names
        )
    except ApiError as error:
        return DeleteShareGroupOffsetsResponse(
            error_code=error.code, error_message=error.message or None
        )
    return DeleteShareGroupOffsetsResponse(
        responses=[
            DeleteShareGroupOffsetsResponseTopic(name, *outcome)
            for name, outcome in zip(names, outcomes, strict=True)
        ]
    )


def refuse(
    request_context: RequestContext, request: DeleteShareGroupOffsetsRequest, error: ErrorCode
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
