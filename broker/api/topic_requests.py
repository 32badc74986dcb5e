"""CreateTopics and DeleteTopics towards the controller, and waiting until this broker knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from broker.service.changes import forward_change
from broker.service.context import BrokerContext
from metadata.image import MetadataImage, metric_name
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb

R = TypeVar("R", bound=Any)

_KNOWN_HERE_S = 1.0
"""How long an answer is held back until this broker's own metadata shows the change."""


AT_ONCE = 64
"""Topics and partitions of one decision: brokers make or delete their logs in one turn of the event
loop. A topic of more partitions is one decision all the same."""

NAMED_MAX = 10_000
"""What one administrative request may name, and how much it may make, as at the controller."""


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


def check_named(count: int, what: str) -> None:
    """Raises ApiError POLICY_VIOLATION for too much, as the controller would, before anything is
    made of it."""
    if count > NAMED_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{count} {what} are too many for one request, {NAMED_MAX} are the most",
        )


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
    """A result for each topic, by name. Many topics are several decisions, one after the other.

    Raises ApiError when nothing was decided: POLICY_VIOLATION for too many topics, or no
    controller answered in time. What is left when a later decision fails gets its error.
    """
    check_named(len(topics), "topics")
    deadline = context.clock.monotonic() + timeout_s
    if validate_only:  # no decision sees what others would have made, but names may collide
        topics = sorted(topics, key=lambda topic: metric_name(topic.name))
    results: list[pb.CreateTopicsResponse.Topic] = []
    created: list[bytes] = []
    made = 0
    for part in _creations(topics):
        request = pb.CreateTopicsRequest(topics=part, validate_only=validate_only)
        try:
            if results:
                _check_left(made + sum(map(_size_of, part)), deadline - context.clock.monotonic())
            answer = await forwarded(
                context,
                "CreateTopics",
                request,
                pb.CreateTopicsResponse,
                timeout_s=deadline - context.clock.monotonic(),
            )
        except ApiError as error:
            if not results:
                raise
            left = topics[len(results) :]
            results += [_not_created(topic, error) for topic in left]
            break
        results += answer.topics
        created = [t.topic_id for t in answer.topics if t.error == ErrorCode.NONE] or created
        made += sum(topic.partitions for topic in answer.topics)
    if created and not validate_only:
        # A client's next request often comes to this broker: it should know the topics by then.
        await context.wait_until(
            lambda image: all(topic_id in image.topics for topic_id in created),
            known_here_s(context, deadline),
        )
    return results


def _size_of(topic: pb.NewTopic) -> int:
    return max(1, topic.partitions, len(topic.assignments))


def _check_left(partitions: int, left_s: float) -> None:
    if partitions > NAMED_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the topics before it have made of {NAMED_MAX} partitions for one request too many",
        )
    if left_s <= 0:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the time of the request was over before it")


def _not_created(topic: pb.NewTopic, error: ApiError) -> pb.CreateTopicsResponse.Topic:
    return pb.CreateTopicsResponse.Topic(name=topic.name, error=error.code, message=error.message)


def _creations(topics: Sequence[pb.NewTopic]) -> Iterator[list[pb.NewTopic]]:
    part: list[pb.NewTopic] = []
    size = 0
    for topic in topics:
        more = _size_of(topic)
        # Neighbours that collide stay together.
        if size + more > AT_ONCE and part and metric_name(part[-1].name) != metric_name(topic.name):
            yield part
            part, size = [], 0
        part.append(topic)
        size += more
    if part:
        yield part


async def delete(
    context: BrokerContext, names: Sequence[str], topic_ids: Sequence[bytes], *, timeout_s: float
) -> list[pb.DeleteTopicsResponse.Topic]:
    """Results for names and ids, those for names first. As ``create``, many are several decisions.

    Raises ApiError when nothing was decided.
    """
    check_named(len(names) + len(topic_ids), "topics")
    deadline = context.clock.monotonic() + timeout_s
    results: list[pb.DeleteTopicsResponse.Topic] = []
    deleted: list[bytes] = []
    for request in _deletions(context.image(), names, topic_ids):
        try:
            if results:
                _check_left(0, deadline - context.clock.monotonic())
            answer = await forwarded(
                context,
                "DeleteTopics",
                request,
                pb.DeleteTopicsResponse,
                timeout_s=deadline - context.clock.monotonic(),
            )
        except ApiError as error:
            if not results:
                raise
            results += _not_deleted(names, topic_ids, len(results), error)
            break
        results += answer.topics
        deleted = [t.topic_id for t in answer.topics if t.error == ErrorCode.NONE] or deleted
    if deleted:
        await context.wait_until(
            lambda image: not any(topic_id in image.topics for topic_id in deleted),
            known_here_s(context, deadline),
        )
    return results


def _not_deleted(
    names: Sequence[str], topic_ids: Sequence[bytes], done: int, error: ApiError
) -> Iterator[pb.DeleteTopicsResponse.Topic]:
    for name in names[done:]:
        yield pb.DeleteTopicsResponse.Topic(name=name, error=error.code, message=error.message)
    for topic_id in topic_ids[max(0, done - len(names)) :]:
        yield pb.DeleteTopicsResponse.Topic(
            topic_id=topic_id, error=error.code, message=error.message
        )


def _deletions(
    image: MetadataImage, names: Sequence[str], topic_ids: Sequence[bytes]
) -> Iterator[pb.DeleteTopicsRequest]:
    request, size = pb.DeleteTopicsRequest(), 0
    asked: list[str | bytes] = [*names, *topic_ids]
    for each in asked:
        topic = image.topic(each) if isinstance(each, str) else image.topic_by_id(each)
        more = 1 if topic is None else len(topic.partitions)
        if size and size + more > AT_ONCE:
            yield request
            request, size = pb.DeleteTopicsRequest(), 0
        if isinstance(each, str):
            request.names.append(each)
        else:
            request.topic_ids.append(each)
        size += more
    yield request
