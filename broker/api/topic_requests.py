"""CreateTopics and DeleteTopics towards the controller, and waiting until this broker knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from broker.changes import forward_change
from broker.context import BrokerContext
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb

R = TypeVar("R", bound=Any)

_KNOWN_HERE_S = 1.0
"""How long an answer is held back until this broker's own metadata shows the change."""


_NO_WAIT_S = 5.0
"""How long the controller is given by a client that does not want to wait."""


def patience_s(timeout_ms: int) -> float:
    """For how long the active controller is asked on behalf of a client.

    A client that gives no time at all wants the request to be made and not to wait for more: it
    is answered as others are, and not refused for a time in which nobody could have answered.
    """
    return timeout_ms / 1000 if timeout_ms > 0 else _NO_WAIT_S


def error_code(number: int) -> ErrorCode:
    """An error of the wire; one that this version does not know is a server's error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


async def forwarded(
    context: BrokerContext, name: str, request: Any, response_type: type[R], *, timeout_s: float
) -> R:
    """The active controller's answer to a change, which is not refused as a whole.

    Raises ApiError: the refusal, or REQUEST_TIMED_OUT for whatever Kafka's clients know by that.
    """
    try:
        answer = await forward_change(context, name, request, response_type, timeout_s=timeout_s)
    except ApiError as error:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, error.message) from error
    if answer.error != ErrorCode.NONE:
        message = answer.message or f"the controller refused {name}"
        raise ApiError(error_code(answer.error), message)
    return answer


def known_here_s(context: BrokerContext, deadline: float) -> float:
    """How long to wait until this broker knows the change, too: never past the deadline."""
    return max(0.0, min(_KNOWN_HERE_S, deadline - context.clock.monotonic()))


async def known_here(context: BrokerContext, metadata_offset: int, deadline: float) -> None:
    """Wait until this broker's own metadata has a decision: a client's next question often comes
    to it. Never past the deadline."""
    await context.wait_until(
        lambda image: image.offset >= metadata_offset, known_here_s(context, deadline)
    )


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
    deadline = context.clock.monotonic() + timeout_s
    request = pb.CreateTopicsRequest(topics=topics, validate_only=validate_only)
    answer = await forwarded(
        context, "CreateTopics", request, pb.CreateTopicsResponse, timeout_s=timeout_s
    )
    created = [t.topic_id for t in answer.topics if t.error == ErrorCode.NONE]
    if created and not validate_only:
        # A client's next request often comes to this broker: it should know the topic by then.
        await context.wait_until(
            lambda image: all(topic_id in image.topics for topic_id in created),
            known_here_s(context, deadline),
        )
    return list(answer.topics)


async def delete(
    context: BrokerContext, names: Sequence[str], topic_ids: Sequence[bytes], *, timeout_s: float
) -> list[pb.DeleteTopicsResponse.Topic]:
    """Results for names and ids. Raises ApiError when no controller answered in time."""
    deadline = context.clock.monotonic() + timeout_s
    request = pb.DeleteTopicsRequest(names=names, topic_ids=topic_ids)
    answer = await forwarded(
        context, "DeleteTopics", request, pb.DeleteTopicsResponse, timeout_s=timeout_s
    )
    deleted = [t.topic_id for t in answer.topics if t.error == ErrorCode.NONE]
    if deleted:
        await context.wait_until(
            lambda image: not any(topic_id in image.topics for topic_id in deleted),
            known_here_s(context, deadline),
        )
    return list(answer.topics)
