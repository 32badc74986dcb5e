"""DeleteTopics (20), versions 1-6, forwarded to the active controller.

Deviations: the answer waits until this broker has dropped the topic too, a second at most.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import changes
from broker.service.context import BrokerContext
from broker.service.topics import NO_TOPIC_ID
from runtime.administration.parts import error_code
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import delete_topics as messages
from stele.wire.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices

_STRICT_FROM = 5
"""As in CreateTopics."""


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    asked = _asked(request_context, request)
    changes.check_named(len(asked), "topics")
    names = [name for name, _ in asked if name is not None]
    topic_ids = [topic_id for name, topic_id in asked if name is None]
    if len(set(names)) < len(names) or len(set(topic_ids)) < len(topic_ids):
        return await refuse(request_context, request, ErrorCode.INVALID_REQUEST)
    wishes = pb.DeleteTopicsRequest(names=names, topic_ids=topic_ids)
    wishes.on_behalf_of.may_exceed_quota = request_context.version < _STRICT_FROM
    try:
        answer = await changes.accepted_change(
            context,
            request_context.caller,
            wishes,
            timeout_s=changes.patience_s(request.timeout_ms),
        )
    except ApiError as error:
        return await refuse(request_context, request, error.code)
    by_name = {result.name: result for result in answer.topics}
    by_id = {result.topic_id: result for result in answer.topics}

    def told(each: tuple[str | None, bytes]) -> DeletableTopicResult:
        name, topic_id = each
        result = by_id.get(topic_id) if name is None else by_name.get(name)
        if result is None:
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "the controller did not say"
        else:
            code, message = error_code(result.error), result.message
            topic_id = result.topic_id or topic_id
            name = result.name or name
        return DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=code, error_message=message or None
        )

    return DeleteTopicsResponse(answer.throttle_time_ms, await in_slices(told, asked))


def _asked(
    request_context: RequestContext, request: DeleteTopicsRequest
) -> list[tuple[str | None, bytes]]:
    """(name, id) of each topic; from version 6 on a topic has the one or the other."""
    if request_context.version < 6:
        return [(name, NO_TOPIC_ID) for name in request.topic_names]
    return [(topic.name, topic.topic_id) for topic in request.topics]


async def refuse(
    request_context: RequestContext, request: DeleteTopicsRequest, error: ErrorCode
) -> DeleteTopicsResponse:
    refused = await in_slices(
        lambda each: DeletableTopicResult(name=each[0], topic_id=each[1], error_code=error),
        _asked(request_context, request),
    )
    return DeleteTopicsResponse(responses=refused)


SERVED = Served(messages.API, refuse, handle_async=handle)
