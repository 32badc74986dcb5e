"""DeleteTopics (20), versions 1-6, forwarded to the active controller.

Deviations: the answer waits until this broker has dropped the topic too, a second at most.
"""

from __future__ import annotations

from broker.api.call import Call, Served
from broker.service import changes, topic_changes
from broker.service.context import BrokerContext
from broker.service.topics import NO_TOPIC_ID
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import delete_topics as messages
from stele.wire.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)


async def handle(
    context: BrokerContext, call: Call, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    asked = _asked(call, request)
    changes.check_named(len(asked), "topics")
    names = [name for name, _ in asked if name is not None]
    topic_ids = [topic_id for name, topic_id in asked if name is None]
    if len(set(names)) < len(names) or len(set(topic_ids)) < len(topic_ids):
        return refuse(call, request, ErrorCode.INVALID_REQUEST)
    try:
        results = await topic_changes.delete(
            context, call.caller, names, topic_ids, timeout_s=changes.patience_s(request.timeout_ms)
        )
    except ApiError as error:
        return refuse(call, request, error.code)
    by_name = {result.name: result for result in results}
    by_id = {result.topic_id: result for result in results}
    responses = []
    for name, topic_id in asked:
        result = by_id.get(topic_id) if name is None else by_name.get(name)
        if result is None:
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "the controller did not say"
        else:
            code, message = changes.error_code(result.error), result.message
            topic_id = result.topic_id or topic_id
            name = result.name or name
        responses.append(
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=message or None
            )
        )
    return DeleteTopicsResponse(responses=responses)


def _asked(call: Call, request: DeleteTopicsRequest) -> list[tuple[str | None, bytes]]:
    """(name, id) of each topic; from version 6 on a topic has the one or the other."""
    if call.version < 6:
        return [(name, NO_TOPIC_ID) for name in request.topic_names]
    return [(topic.name, topic.topic_id) for topic in request.topics]


def refuse(call: Call, request: DeleteTopicsRequest, error: ErrorCode) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=error)
            for name, topic_id in _asked(call, request)
        ]
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
