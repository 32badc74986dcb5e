"""CreateTopics and DeleteTopics towards the controller, and waiting until this broker knows."""

from __future__ import annotations

from collections.abc import Sequence

from broker.context import BrokerContext
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb

_KNOWN_HERE_S = 1.0
"""How long an answer is held back until this broker's own metadata shows the change."""


def error_code(number: int) -> ErrorCode:
    """An error of the wire; one that this version does not know is a server's error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


async def create(
    context: BrokerContext,
    topics: Sequence[pb.NewTopic],
    *,
    timeout_s: float,
    validate_only: bool = False,
) -> list[pb.CreateTopicsResponse.Topic]:
    """A result for each topic, in the order asked, by name.

    Raises ApiError when no controller answered in time.
    """
    answer = await context.controller.call(
        "/stele.v1.Admin/CreateTopics",
        pb.CreateTopicsRequest(topics=topics, validate_only=validate_only),
        pb.CreateTopicsResponse,
        timeout_s=timeout_s,
    )
    if answer.error != ErrorCode.NONE:
        raise ApiError(error_code(answer.error), "the controller refused CreateTopics")
    created = [t.topic_id for t in answer.topics if t.error == ErrorCode.NONE]
    if created and not validate_only:
        # A client's next request often comes to this broker: it should know the topic by then.
        await context.wait_until(
            lambda image: all(topic_id in image.topics for topic_id in created), _KNOWN_HERE_S
        )
    return list(answer.topics)


async def delete(
    context: BrokerContext, names: Sequence[str], topic_ids: Sequence[bytes], *, timeout_s: float
) -> list[pb.DeleteTopicsResponse.Topic]:
    """Results for names and ids. Raises ApiError when no controller answered in time."""
    answer = await context.controller.call(
        "/stele.v1.Admin/DeleteTopics",
        pb.DeleteTopicsRequest(names=names, topic_ids=topic_ids),
        pb.DeleteTopicsResponse,
        timeout_s=timeout_s,
    )
    if answer.error != ErrorCode.NONE:
        raise ApiError(error_code(answer.error), "the controller refused DeleteTopics")
    deleted = [t.topic_id for t in answer.topics if t.error == ErrorCode.NONE]
    if deleted:
        await context.wait_until(
            lambda image: not any(topic_id in image.topics for topic_id in deleted), _KNOWN_HERE_S
        )
    return list(answer.topics)
